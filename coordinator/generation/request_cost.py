"""The memory that a request takes, by what is known of it before it is submitted."""

from collections.abc import Sequence

from tokenwire.coordinator.generation.limits import check_min_tokens
from tokenwire.coordinator.output.choice import MOST_DECODED
from tokenwire.coordinator.types import GenerationRequest, ServedModel
from tokenwire.errors import InvalidRequest, mib
from tokenwire.v1 import inference_pb2 as pb

_REQUEST_BYTES = 26 * 1024
"""Of a request and its connection."""
_CHOICE_BYTES = 1536
"""Of a choice that waits: what listens to it, and its detokenizer."""
_PARSER_BYTES = 32 * 1024
"""Of the parser of a streamed choice."""
_TOKEN_BYTES = 40
"""Of an id of a prompt, with its text."""
_CHAR_BYTES = 2
"""Of a text that is longer, because most of it is cut off: as the request has it, and rendered."""
_LOGPROB_BYTES = 240
"""Of a log-probability of a reply, or of a short prompt, which is kept decoded."""
_ROW_BYTES = 64
"""Of one of a prompt, for each choice that gets it. Measured with 20 for each of 24,000 tokens: 7 bytes arrive, 13 are
kept until the reply is sent, and what is rendered at a time takes 3 more. It is not less because those of a prompt come
in one event, which may have an eighth of the bytes that a request may take.
"""
_KEPT_TOKEN_BYTES = 100
"""Of a token of a reply that is kept until it is complete: its id, and its text."""
_FIRST_TOKENS = 4096
"""Of each choice of such a reply: what it claims at first, and what has to fit if its request names no maximum."""
_FEW_TOKENS = 16 * 1024
"""Of all choices to a prompt: of more, long texts of tokens would count, so what they take is watched as it comes."""
_REPEATED_BYTES = 10
"""Of a token of a prompt with which each choice begins, as text or as an id."""


class RequestCost:
    """The bytes that a request takes, known before any of it is submitted, with those of a reply that is kept whole.

    Of a streamed one only the log-probabilities of a token count.
    """

    def __init__(self, request: GenerationRequest, sampling: pb.SamplingParams, model: ServedModel) -> None:
        self.size_bytes = self.placed_bytes = _REQUEST_BYTES
        """What it takes before its reply begins, and with the reply, as far as that is claimed when it is placed."""
        self._n = request.n
        self._choice_bytes = _CHOICE_BYTES + (_PARSER_BYTES if request.streams and request.plan is not None else 0)
        self._repeats, self._repeated_bytes = request.repeats_prompt, 0
        self.parameter_bytes = sampling.ByteSize()
        self._logprobs = 0
        """Log-probabilities of each prompt token."""
        self._logprob_bytes = 0
        """What they take, of all prompts."""
        if sampling.HasField("prompt_logprobs"):
            requested = sampling.prompt_logprobs
            self._logprobs = 1 + (model.max_token_id if requested < 0 else requested)
        self._kept = 0
        """Log-probabilities of each output token that are kept until they are sent."""
        self._streams = request.streams
        self._length_param = request.max_tokens_param or "max_tokens"
        if sampling.HasField("logprobs"):
            self._kept = 1 + (model.max_token_id if sampling.logprobs < 0 else sampling.logprobs)
        elif sampling.logprob_token_ids:
            self._kept = 1 + len(sampling.logprob_token_ids)
        self._token_bytes = _LOGPROB_BYTES * self._kept + (0 if request.streams else _KEPT_TOKEN_BYTES)
        """What each token of a reply takes, while it is kept."""
        self._named = sampling.HasField("max_tokens")
        self._min_tokens = sampling.min_tokens
        self._output_tokens = 0
        """Those that have to fit, of all choices."""
        self._claimed_tokens = 0
        """Those for which there is memory from the first on."""
        self._may_grow = False
        self._prompts = self._tokens = self._prompt_bytes = 0

    def add_prompt(self, tokens: int, max_tokens: int, chars: int = 0) -> None:
        """Add a prompt of so many tokens, and the most tokens of a reply to it. chars: of its text, before the cut."""
        self._prompts += 1
        self._add_output(max_tokens)
        self._tokens += tokens
        scored = self._logprobs * tokens
        repeated = max(_REPEATED_BYTES * tokens, _CHAR_BYTES * chars) * self._repeats
        self._repeated_bytes += repeated
        each_choice = self._choice_bytes + repeated
        scored_bytes = _ROW_BYTES * scored * self._n + (_LOGPROB_BYTES - _ROW_BYTES) * min(scored, MOST_DECODED)
        self._logprob_bytes += scored_bytes
        prompt_bytes = max(_TOKEN_BYTES * tokens, _CHAR_BYTES * chars)
        self._prompt_bytes += prompt_bytes
        self.size_bytes += prompt_bytes + self.parameter_bytes + each_choice * self._n + scored_bytes
        self.placed_bytes = self.size_bytes + self._token_bytes * self._claimed_tokens

    def _add_output(self, max_tokens: int) -> None:
        """Add the reply to a prompt. Log-probabilities are much: of a maximum that is named all are claimed at once, so
        that the request waits for memory instead of failing halfway.
        """
        if self._streams:
            fitting = claimed = 1
        else:
            fitting = max_tokens if self._named else min(max_tokens, max(_FIRST_TOKENS, self._min_tokens))
            claimed = fitting if self._named and self._kept else min(max_tokens, _FIRST_TOKENS)
            self._may_grow |= claimed < max_tokens or (not self._kept and claimed * self._n > _FEW_TOKENS)
        self._output_tokens += fitting * self._n
        self._claimed_tokens += claimed * self._n

    @property
    def growth(self) -> tuple[int, int] | None:
        """The tokens of the reply that are in that, and the bytes of each that may come beyond; None: none may."""
        return (self._claimed_tokens, self._token_bytes) if self._may_grow else None

    def bounded(self, max_tokens: Sequence[int], most_bytes: int) -> Sequence[int]:
        """Return the maximum tokens of the replies to all prompts: if not named, as many as so many bytes allow.

        Raises InvalidRequest if that is less than the minimum.
        """
        if self._named:
            return max_tokens
        each = (most_bytes - self.size_bytes) // (self._token_bytes * self._n * self._prompts)
        bounded = [min(tokens, each) for tokens in max_tokens]
        check_min_tokens(self._min_tokens, min(bounded))
        return bounded

    def check(self, most_bytes: int) -> None:
        """Check that it is not more than so many bytes. Raises InvalidRequest, which says what takes most."""
        output = self._token_bytes * self._output_tokens
        whole = self.size_bytes + output
        if whole <= most_bytes:
            return
        scored = f"{self._kept} log-probabilities of {self._output_tokens} tokens of a reply at once"
        unnamed = "" if self._named else f" and of which no {self._length_param} is named"
        kept = f"{self._output_tokens} tokens of a reply that is not streamed{unnamed}"
        n, tokens, prompts, parameters = self._n, self._tokens, self._prompts, self.parameter_bytes
        logprobs = self._logprobs
        size, what, param = max(
            (output, scored if self._kept else kept, "logprobs" if self._kept else self._length_param),
            (self._choice_bytes * prompts * n, f"{prompts * n} choices", "n"),
            (self._repeated_bytes * n, f"{tokens} prompt tokens that n={n} choices repeat", "n"),
            (self._prompt_bytes, f"{tokens} prompt tokens with their text", "prompt"),
            (parameters * prompts, f"{parameters} bytes of parameters for each of {prompts} prompts", "prompt"),
            (self._logprob_bytes, f"{logprobs} log-probabilities of {tokens} tokens, n={n}", "prompt_logprobs"),
        )
        raise InvalidRequest(
            f"The request takes about {mib(whole)}, more than {mib(most_bytes)} "
            f"(--max-request-mb): {mib(size)} of them for {what}.",
            param=param,
        )


def check_inputs(inputs: int, tokens: int, result_bytes: int, repeated_bytes: int, most_bytes: int) -> int:
    """Return the bytes that a pooling request takes, with its results and the texts that its response repeats, if it is
    not more. Raises InvalidRequest.
    """
    size_bytes = _REQUEST_BYTES + _CHOICE_BYTES * inputs + _TOKEN_BYTES * tokens + result_bytes + repeated_bytes
    if size_bytes > most_bytes:
        of_tokens = _TOKEN_BYTES * tokens
        size, what = max(
            (result_bytes, "their results"),
            (of_tokens, f"{tokens} tokens"),
            (repeated_bytes, "texts that the response repeats"),
        )
        raise InvalidRequest(
            f"The {inputs} inputs take about {mib(size_bytes)}, more than {mib(most_bytes)} (--max-request-mb): "
            f"{mib(size)} of them for {what}.",
            param="input",
        )
    return size_bytes


def check_given(choices: int, tokens: int, logprobs: int, most_bytes: int) -> None:
    """Check that a reply that a request brings takes no more than so many bytes. Raises InvalidRequest."""
    parts = [
        (_CHOICE_BYTES * choices, f"{choices} choices", "choices"),
        (_KEPT_TOKEN_BYTES * tokens, f"{tokens} tokens", "token_ids"),
        (_LOGPROB_BYTES * logprobs, f"{logprobs} log-probabilities", "logprobs"),
    ]
    whole = _REQUEST_BYTES + sum(part[0] for part in parts)
    if whole > most_bytes:
        size, what, param = max(parts)
        raise InvalidRequest(
            f"The reply takes about {mib(whole)}, more than {mib(most_bytes)} (--max-request-mb): {mib(size)} of them "
            f"for {what}.",
            param=param,
        )
