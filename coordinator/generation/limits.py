"""Checks that cost a worker nothing: lengths, vocabulary, ranges. Messages follow vLLM's: clients match on them.

One file, since all limits on requests are read in one place.
"""

import json
import math
from collections.abc import Sequence

from tokenwire.coordinator.generation.grammar_limits import check_grammar
from tokenwire.coordinator.types import GenerationRequest, ServedModel
from tokenwire.errors import InvalidRequest, Malformed, NotFound, PromptTooLong
from tokenwire.v1 import inference_pb2 as pb

MAX_N = 16_384
MAX_SEQUENCES = 16_384
"""Of all prompts of a request together."""
MAX_STOP_STRINGS = 4
"""OpenAI's own limit."""
MAX_STOPS = 128
"""On routes that follow vLLM's SamplingParams, which has none."""
MAX_STOP_CHARS = 4096
MAX_ALL_STOP_CHARS = MAX_STOP_STRINGS * MAX_STOP_CHARS
"""Of all stop strings of a request together, because the automaton that searches for them grows with each character."""
MAX_BAD_WORDS = 128
MAX_BAD_WORD_CHARS = 1024
MAX_LOGPROB_TOKEN_IDS = 128
TRANSFER_PARAMS = ("kv_transfer_params", "ec_transfer_params")
MAX_SEED = 2**63 - 1
MAX_BIASES = 10_000
MAX_IDS = 3 * 2**17
"""Of a list in the sampling parameters: more than any vocabulary."""
LONG_TEXT_CHARS = 2**19
"""Longer texts are not tokenized as a whole before it is known that their parts have few enough tokens."""
_PART_CHARS = 2**18
PART_TOKENS = 64
"""Tokens by which the number of a part's tokens may differ from that of the same text within the whole."""
_MOST_IDS = {"logit_bias": MAX_BIASES, "stop_token_ids": 1024}

_OUT_OF_VOCABULARY = {
    "allowed_token_ids": "allowed_token_ids contains out-of-vocab token id!",
    "input": "Token id {0} is out of vocabulary",
    "prompt": "Token id {0} is out of vocabulary",
    "token_ids": "Token id {0} is out of vocabulary",
    "tokens": "Token id {0} is out of vocabulary",
    "kv_transfer_params.prompt_token_ids": "Token id {0} is out of vocabulary",
}


def lacks_route(model: ServedModel, api: str) -> NotFound:
    """Return the error for a model that lacks a route. It begins with vLLM's words, which clients may match."""
    tasks = ", ".join(model.tasks)
    return NotFound(f"The model does not support {api}: `{model.name}` is for {tasks}.", param="model")


def check_request(request: GenerationRequest, sampling: pb.SamplingParams, model: ServedModel) -> None:
    """Check everything that does not depend on the prompts, with the model's defaults. Raises InvalidRequest, or
    NotFound if the model generates nothing.
    """
    if model.pooling is not None:
        raise lacks_route(model, "generation")
    if request.n < 1:
        raise InvalidRequest(f"n must be at least 1, got {request.n}.", param="n")
    if request.n > MAX_N:
        raise InvalidRequest(f"n must be at most {MAX_N}, got {request.n}.", param="n")
    check_sequences(request.n, len(request.prompts))
    _check_texts(request.text.stop, sampling)
    named = request.max_tokens_param
    if named is not None and sampling.HasField("max_tokens") and sampling.max_tokens > model.max_model_len:
        raise InvalidRequest(
            f"{named}={sampling.max_tokens} cannot be greater than "
            f"max_model_len={model.max_model_len}. Please request fewer output tokens.",
            param=named,
        )
    _check_ranges(sampling)
    if request.n > 1 and sampling.temperature < 1e-5:
        raise InvalidRequest(f"n must be 1 when using greedy sampling, got {request.n}.", param="n")
    if sampling.seed > MAX_SEED - request.n + 1:
        raise InvalidRequest(
            f"seed must be at most {MAX_SEED - request.n + 1} with n={request.n}: sequence i samples with seed + i.",
            param="seed",
        )
    _check_lists(sampling, model)
    if sampling.HasField("structured_outputs"):
        check_grammar(sampling.structured_outputs)


def _check_lists(sampling: pb.SamplingParams, model: ServedModel) -> None:
    for name, most in _MOST_IDS.items():
        if len(getattr(sampling, name)) > most:
            raise InvalidRequest(f"{name} has {len(getattr(sampling, name))} entries, more than {most}.", param=name)
    if len(sampling.trace_decode_token_ids) > model.max_model_len:
        raise InvalidRequest(
            f"trace_decode_token_ids has {len(sampling.trace_decode_token_ids)} entries, more than "
            f"max_model_len={model.max_model_len}.",
            param="trace_decode_token_ids",
        )
    if len(sampling.logprob_token_ids) > MAX_LOGPROB_TOKEN_IDS:
        raise InvalidRequest(
            f"Requested logprob_token_ids of length {len(sampling.logprob_token_ids)}, which is greater than max "
            f"allowed: {MAX_LOGPROB_TOKEN_IDS}",
            param="logprob_token_ids",
        )
    for name in ("stop_token_ids", "allowed_token_ids", "logit_bias", "logprob_token_ids"):
        if token_ids := getattr(sampling, name):
            check_ids([*token_ids], model, name)


def check_sequences(n: int, prompts: int) -> None:
    """Check the number of sequences of a request, before any work on its prompts. Raises InvalidRequest."""
    if n * prompts > MAX_SEQUENCES:
        raise InvalidRequest(f"n={n} for {prompts} prompts exceeds {MAX_SEQUENCES} sequences.", param="n")


def _check_texts(stop: Sequence[str], sampling: pb.SamplingParams) -> None:
    if len(stop) > MAX_STOPS:
        raise InvalidRequest(f"Too many stop strings: {len(stop)}, more than {MAX_STOPS}.", param="stop")
    if "" in stop:
        raise InvalidRequest("stop cannot contain an empty string.", param="stop")
    if stop and (longest := max(map(len, stop))) > MAX_STOP_CHARS:
        raise InvalidRequest(f"A stop string has {longest} characters, more than {MAX_STOP_CHARS}.", param="stop")
    if (chars := sum(map(len, stop))) > MAX_ALL_STOP_CHARS:
        raise InvalidRequest(
            f"The stop strings have {chars} characters together, more than {MAX_ALL_STOP_CHARS}.", param="stop"
        )
    if len(sampling.bad_words) > MAX_BAD_WORDS:
        raise InvalidRequest(
            f"Too many bad words: {len(sampling.bad_words)}, more than {MAX_BAD_WORDS}.", param="bad_words"
        )
    if sampling.bad_words and (longest := max(map(len, sampling.bad_words))) > MAX_BAD_WORD_CHARS:
        raise InvalidRequest(f"A bad word has {longest} characters, more than {MAX_BAD_WORD_CHARS}.", param="bad_words")


def check_no_transfer(sampling: pb.SamplingParams) -> None:
    """Check that a request has no KV transfer parameters. Raises InvalidRequest.

    Engines trust these parameters: invalid ones crash an engine, put foreign blocks into its prefix cache, or make it
    connect to any host.
    """
    # An engine takes those among extra arguments for its own.
    text = sampling.extra_args_json
    extra = json.loads(text) if text and any(name in text for name in TRANSFER_PARAMS) else {}
    for name in TRANSFER_PARAMS:
        if sampling.HasField(f"{name}_json") or extra.get(name) not in (None, {}):
            raise InvalidRequest(
                f"`{name}` is not accepted from clients. Operators whose own router fills it can allow it with "
                "--allow-kv-transfer-params.",
                param=name,
            )


def check_no_transfer_fields(body: object) -> None:
    """Check that a body has no transfer parameters, for routes that cannot pass them on. Raises InvalidRequest."""
    for name in TRANSFER_PARAMS:
        if isinstance(body, dict) and body.get(name) not in (None, {}):
            raise InvalidRequest(f"`{name}` is not accepted on this route.", param=name)


def check_text_length(text: str, model: ServedModel, max_tokens: int | None = None) -> None:
    """Check that a text can be short enough at all, before it is tokenized. Raises InvalidRequest.

    max_tokens: of the text; None: the model's context.
    """
    most = model.max_model_len if max_tokens is None else max_tokens
    limit = most * model.tokenizer.max_chars_per_token
    if len(text) > limit:
        raise InvalidRequest(
            f"This model's maximum context length is {most} tokens. However, your prompt contains "
            f"{len(text)} characters (more than {limit} characters, which is the upper bound for "
            f"{most} input tokens). Please reduce the length of the input prompt.",
            param="input_text",
        )


def check_token_count(text: str, model: ServedModel) -> None:
    """Check that a long text is not certain to have too many tokens, without tokenizing more than need be.

    Takes the time that the context's tokens take. Raises InvalidRequest.
    """
    tokens = 0
    for start in range(0, len(text), _PART_CHARS):
        part = text[start : start + _PART_CHARS]
        tokens += max(0, len(model.tokenizer.encode(part, add_special_tokens=False)) - PART_TOKENS)
        if tokens > model.max_model_len:
            raise PromptTooLong(tokens, model.max_model_len, "at least ")


def check_prompt(
    token_ids: Sequence[int], known: int, sampling: pb.SamplingParams, model: ServedModel, param: str
) -> int:
    """Check a prompt's ids; return the maximum tokens of a reply to it. Raises InvalidRequest.

    known: how many of the leading ids are certain to be the model's: of its tokenizer, or checked in an earlier prompt.
    """
    check_length(len(token_ids), model)
    max_tokens = resolve_max_tokens(sampling, len(token_ids), model)
    check_min_tokens(sampling.min_tokens, max_tokens)
    check_ids(token_ids[known:] if known else token_ids, model, param)
    return max_tokens


def check_length(length: int, model: ServedModel) -> None:
    """Check the length of a prompt. Raises InvalidRequest."""
    if not length:
        raise InvalidRequest("The decoder prompt cannot be empty", param="prompt")
    if length >= model.max_model_len:
        raise PromptTooLong(length, model.max_model_len)


def resolve_max_tokens(sampling: pb.SamplingParams, prompt_length: int, model: ServedModel) -> int:
    """Return the requested maximum of tokens, bounded by the context left after the prompt."""
    left = model.max_model_len - prompt_length
    if sampling.HasField("max_tokens"):
        return min(sampling.max_tokens, left)
    default = model.default_sampling_params.get("max_tokens")
    return left if default is None else min(default, left)


def check_min_tokens(min_tokens: int, max_tokens: int) -> None:
    """Check that the minimum can be reached. Raises InvalidRequest."""
    if min_tokens > max_tokens:
        raise InvalidRequest(
            f"min_tokens must be less than or equal to max_tokens={max_tokens}, got {min_tokens}.", param="min_tokens"
        )


def _check_ranges(sampling: pb.SamplingParams) -> None:
    for name in ("presence_penalty", "frequency_penalty"):
        value = getattr(sampling, name)
        if not -2.0 <= value <= 2.0:
            raise InvalidRequest(f"{name} must be in [-2, 2], got {value}.", param=name)
    repetition, temperature = sampling.repetition_penalty, sampling.temperature
    if not math.isfinite(repetition):
        raise InvalidRequest(
            f"repetition_penalty must be a finite number, got {repetition}.", param="repetition_penalty"
        )
    if repetition <= 0:
        raise InvalidRequest(
            f"repetition_penalty must be greater than zero, got {repetition}.", param="repetition_penalty"
        )
    if not math.isfinite(temperature):
        raise InvalidRequest(f"temperature must be a finite number, got {temperature}.", param="temperature")
    if temperature < 0:
        raise InvalidRequest(f"temperature must be non-negative, got {temperature}.", param="temperature")
    if temperature > 2:
        raise InvalidRequest(f"temperature must be in [0, 2], got {temperature}.", param="temperature")
    if not 0 < sampling.top_p <= 1:
        raise InvalidRequest(f"top_p must be in (0, 1], got {sampling.top_p}.", param="top_p")
    if sampling.top_k < -1:
        raise InvalidRequest(f"top_k must be 0 (disable), or at least 1, got {sampling.top_k}.", param="top_k")
    if not 0 <= sampling.min_p <= 1:
        raise InvalidRequest(f"min_p must be in [0, 1], got {sampling.min_p}.", param="min_p")
    if sampling.HasField("max_tokens") and sampling.max_tokens < 1:
        raise InvalidRequest(f"max_tokens must be at least 1, got {sampling.max_tokens}.", param="max_tokens")


def out_of_vocabulary(token_id: int, param: str, vocabulary: int | None = None) -> InvalidRequest:
    """Return the error for an id outside any vocabulary, or outside this model's of `vocabulary` tokens."""
    message = _OUT_OF_VOCABULARY.get(param, "token_id(s) [{0}] in {1} contain out-of-vocab token ids.")
    if param not in _OUT_OF_VOCABULARY and vocabulary is not None:
        message += f" Vocabulary size: {vocabulary}"
    kind = Malformed if param in ("input", "prompt", "tokens") and token_id < 0 else InvalidRequest
    return kind(message.format(token_id, param), param=param)


def check_ids(token_ids: Sequence[int], model: ServedModel, param: str) -> None:
    """Check that ids are in the vocabulary, because others may crash an engine. Raises InvalidRequest."""
    if not token_ids:
        return
    for token_id in (min(token_ids), max(token_ids)):
        if not 0 <= token_id <= model.max_token_id:
            raise out_of_vocabulary(token_id, param, model.max_token_id + 1)
