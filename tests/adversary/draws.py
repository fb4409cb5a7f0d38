"""Draws expensive requests by seed: a route, fields at their limits, and how they are sent and read."""

import random
from collections.abc import Mapping

from tests.adversary import derender_fields, fields, pooling_fields
from tests.adversary.attack import Attack, Reading, Sending
from tests.adversary.values import SHAPES, Value, list_of, small, value_of

TABLES: dict[str, fields.Table] = {
    "/v1/completions": fields.COMPLETION,
    "/v1/chat/completions": fields.CHAT,
    **pooling_fields.TABLES,
    "/v1/chat/completions/tokens": fields.CHAT_TOKENS,
    "/v1/responses": fields.RESPONSES,
    "/v1/responses/compact": fields.COMPACTION,
    "/v1/messages": fields.MESSAGES,
    "/v1/messages/count_tokens": fields.COUNT_TOKENS,
    "/v1/chat/completions/render": fields.CHAT,
    "/v1/completions/render": fields.COMPLETION,
    "/v1/messages/render": fields.MESSAGES,
    "/v1/chat/completions/derender": derender_fields.DERENDER_CHAT,
    "/v1/completions/derender": derender_fields.DERENDER_COMPLETION,
    "/inference/v1/generate": fields.GENERATE,
    "/generate": fields.SGLANG,
    "/generate/": fields.TRL_GENERATE,
    "/chat/": fields.TRL_CHAT,
    "/get_sequence_logprobs/": fields.TRL_LOGPROBS,
    "/tokenize": fields.TOKENIZE,
    "/detokenize": fields.DETOKENIZE,
    "/inference/v1/abort_requests": fields.ABORTS,
    "/abort_requests": fields.ABORTS,
    "/abort_request": fields.SGLANG_ABORT,
}
"""The fields of each route; /v1/tokenize and /v1/detokenize are other names of two."""

POOLING = pooling_fields.TABLES.keys()
"""Routes of models that pool."""

_TALK = value_of("a word", [{"role": "user", "content": "hi"}])
_ONE_TOKEN = {"choices": [{"index": 0, "token_ids": [7]}]}
_REPLY = value_of("a token", _ONE_TOKEN)
_FEW = small(4)[0]
_WARM = small(1.0)[0]
_BASES: dict[str, dict[str, Value]] = {
    "/v1/completions": {"prompt": small("hi")[0], "max_tokens": _FEW, "temperature": _WARM},
    "/v1/chat/completions": {"messages": _TALK, "max_tokens": _FEW, "temperature": _WARM},
    "/v1/chat/completions/tokens": {
        **{"messages": _TALK, "tokens": small([7])[0], "max_tokens": _FEW, "temperature": _WARM}
    },
    **pooling_fields.BASES,
    "/v1/responses": {"input": small("hi")[0], "max_output_tokens": _FEW},
    "/v1/responses/compact": {"input": small("hi")[0], "max_output_tokens": _FEW},
    "/v1/messages": {"messages": _TALK, "max_tokens": _FEW},
    "/v1/messages/count_tokens": {"messages": _TALK},
    "/v1/chat/completions/render": {"messages": _TALK},
    "/v1/completions/render": {"prompt": small("hi")[0]},
    "/v1/messages/render": {"messages": _TALK, "max_tokens": _FEW},
    "/v1/chat/completions/derender": {"generate_response": _REPLY},
    "/v1/completions/derender": {"generate_responses": value_of("a token", [_ONE_TOKEN])},
    "/inference/v1/generate": {"token_ids": small([7])[0], "sampling_params.max_tokens": _FEW},
    "/generate": {"input_ids": small([7])[0], "sampling_params.max_new_tokens": _FEW},
    "/generate/": {"prompts": small(["hi"])[0], "max_tokens": _FEW},
    "/chat/": {"messages": value_of("a word", [[{"role": "user", "content": "hi"}]]), "max_tokens": _FEW},
    "/get_sequence_logprobs/": {"sequences": small([[7, 8]])[0], "prompt_lengths": small([1])[0]},
    "/tokenize": {"prompt": small("hi")[0]},
    "/detokenize": {"tokens": small([7])[0]},
    "/inference/v1/abort_requests": {"request_ids": small(["x"])[0]},
    "/abort_requests": {"request_ids": small(["x"])[0]},
    "/abort_request": {"rid": small("x")[0]},
}
"""What a valid body has at least."""

_PROMPTS = {"prompt", "prompts", "messages", "tokens", "token_ids", "text", "input_ids", "input", "sequences"}
_LENGTHS = {"n", "max_tokens", "max_new_tokens", "max_completion_tokens", "max_output_tokens", "min_tokens"}
_THEMES: dict[str, set[str]] = {
    "replies": {
        *_PROMPTS,
        *_LENGTHS,
        *("echo", "logprobs", "top_logprobs", "prompt_logprobs", "logprob_token_ids", "return_logprob"),
        *("logprob_start_len", "top_logprobs_num", "return_token_ids", "return_prompt_text", "stream", "include"),
        *("return_tokens_as_token_ids", "stream_options", "output_mode", "prompt_lengths", "response_format"),
    },
    "parameters": {
        *_PROMPTS,
        *("n", "stop", "stop_token_ids", "logit_bias", "allowed_token_ids", "bad_words", "logprob_token_ids"),
        *("structured_outputs", "structured_outputs_regex", "response_format", "vllm_xargs", "extra_args", "regex"),
        *("trace_decode_token_ids", "reasoning_parser_kwargs", "generation_kwargs", "chat_template_kwargs", "tools"),
        *("stop_sequences", "json_schema", "ebnf", "output_config", "request_id", "session_id", "stream"),
    },
    "texts": {
        *_PROMPTS,
        *("truncate_prompt_tokens", "truncation_side", "truncation", "add_special_tokens", "system", "instructions"),
        *("documents", "tools", "token_history", "required_prefix_token_ids", "return_token_strs", "session_id"),
        *("echo", "skip_special_tokens"),
    },
}
_NOT_SERVED = {
    *("model", "kv_transfer_params", "ec_transfer_params", "suffix", "prompt_embeds", "use_beam_search", "images"),
    *("media_io_kwargs", "mm_processor_kwargs", "chat_template", "abort_all"),
}
"""Fields that let a request fail before others cost anything: drawn alone."""
_FAILING_SHARE = 0.05
UNKNOWN = "zzz"
"""A field that no model has."""


def draw(seed: int) -> Attack:
    """Return the attack of a seed."""
    chance = random.Random(seed)
    (path,) = chance.choices(list(TABLES), [0.3 if "abort" in path else len(TABLES[path]) ** 0.5 for path in TABLES])
    return draw_of(path, chance)


def draw_of(path: str, chance: random.Random) -> Attack:
    """Return an attack on a route."""
    chosen = _chosen_fields(path, chance)
    sending: Sending = chance.choices(("whole", "in pieces", "never finished"), (90, 5, 5))[0]
    readings: tuple[Reading, ...] = ("read", "stand still", "leave at once")
    reading = chance.choices(readings, (80, 10, 10))[0]
    copies = chance.choices((1, 6), (85, 15))[0] if sending != "never finished" else 60
    how = [] if sending == "whole" else [str(sending)]
    how += [] if reading == "read" else [str(reading)]
    how += [] if copies == 1 else [f"{copies} at once"]
    complete = _completed(path, chosen)
    shown = " x ".join([f"{key}={complete[key].name}" for key in chosen if key in complete])
    return Attack(", ".join([f"{path} {shown}", *how]), path, complete, sending, reading, copies)


def _chosen_fields(path: str, chance: random.Random) -> dict[str, Value]:
    table = TABLES[path]
    failing = [name for name in table if name in _NOT_SERVED]
    if failing and chance.random() < _FAILING_SHARE:
        return {name: chance.choice(table[name]) for name in [chance.choice(failing)]}
    names = [name for name in table if name not in _NOT_SERVED]
    theme = chance.choice([*_THEMES, ""])
    of_theme = [name for name in names if name.rpartition(".")[2] in _THEMES.get(theme, ())]
    from_names = of_theme or names
    chosen: dict[str, Value] = {}
    for _ in range(chance.choice((1, 2, 3, 4, 6, 8))):
        (name,) = chance.choices(from_names, [_weight(name, table) for name in from_names])
        chosen[name] = chance.choice(table[name])
    if chance.random() < 0.1:
        chosen[UNKNOWN] = chance.choice(SHAPES)
    return chosen


def _weight(name: str, table: fields.Table) -> int:
    """Return how often a field is drawn: seldom if it is small and multiplies nothing."""
    own = name.rpartition(".")[2]
    if own in _PROMPTS or own == "n":
        return 8
    multiplies = any(own in theme for theme in _THEMES.values())
    return 4 if multiplies or not all(value.is_small for value in table[name]) else 1


def _completed(path: str, chosen: Mapping[str, Value]) -> dict[str, Value]:
    """Add what the chosen fields need to have an effect."""
    base, true, false = dict(_BASES[path]), small(True)[0], small(False)[0]
    needed: dict[str, dict[str, Value]] = {
        "stream_options": {"stream": true} if path != "/v1/responses" else {},
        "top_logprobs": {"logprobs": true} if "chat/" in path else {},
        "logprob_token_ids": {"logprobs": true if "chat/" in path else small(3)[0]},
        "sampling_params.logprob_token_ids": {"sampling_params.logprobs": small(3)[0]},
        "continue_final_message": {"add_generation_prompt": false},
        "truncation_side": {"truncate_prompt_tokens": small(10)[0]},
        "tool_choice": {"tools": TABLES[path]["tools"][0]} if "tools" in TABLES[path] else {},
        "logprob_start_len": {"return_logprob": true},
        "top_logprobs_num": {"return_logprob": true},
    }
    added = {name: value for each in chosen for name, value in needed.get(each, {}).items() if name not in chosen}
    complete = {**base, **added, **chosen}
    if "text" in chosen and path == "/generate":
        complete.pop("input_ids", None)
    if "messages" in chosen and path == "/tokenize":
        complete.pop("prompt", None)
    if "sequences" in chosen and "prompt_lengths" not in chosen:
        count = chosen["sequences"].name.partition(" ")[0]
        complete["prompt_lengths"] = Value(f"{count} zeros", lambda: list_of("0", int(count.replace(",", ""))))
    if any(name.startswith("generation_kwargs.") for name in complete):
        complete.pop("generation_kwargs", None)
    return complete
