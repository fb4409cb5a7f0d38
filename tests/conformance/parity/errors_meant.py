"""Deliberate differences of errors from vLLM's: pairs of full messages, with the fields that they name."""

import re
from dataclasses import dataclass
from typing import Any

from tests.conformance.parity.wording import Place, places

Error = dict[str, Any]


@dataclass(frozen=True)
class ErrorPair:
    """Two errors about the same mistake."""

    ours: str
    """A pattern of the full message."""
    theirs: str
    """The same, of vLLM's message without the parameter that it appends."""
    param: str | None
    """What ours names."""
    their_param: str | None = None
    types: tuple[str, str] = ("BadRequestError", "BadRequestError")
    statuses: tuple[int, int] | None = None
    """Of ours and theirs; None: whichever, but the same."""

    def applies(self, ours: Error, theirs: Error) -> bool:
        """Return whether two errors are this pair."""
        return (
            re.fullmatch(self.ours, ours["message"], re.DOTALL) is not None
            and re.fullmatch(self.theirs, theirs["message"], re.DOTALL) is not None
            and (ours["param"], theirs["param"]) == (self.param, self.their_param)
            and (ours["type"], theirs["type"]) == self.types
            and all(self._statuses_fit(ours[name], theirs[name]) for name in ("status", "code"))
        )

    def _statuses_fit(self, ours: int, theirs: int) -> bool:
        return ours == theirs if self.statuses is None else (ours, theirs) == self.statuses


# Messages that are the same on both sides, and the field that only ours names; "" stands for the message's first word.
_UNNAMED = (
    (r"max_pattern_size, min_pattern_size must be >=0.*|min_count must be >= 2.*", "repetition_detection"),
    (r"(\w+) must be (?!an? ).*", ""),
    (r"Cannot set both `continue_final_message` and `add_generation_prompt` to True\.", "continue_final_message"),
    (r"Cannot apply chat template to an empty conversation\. Provide at least one message\.", "messages"),
    (r"The decoder prompt cannot be empty|You must pass at least one prompt", "prompt"),
    (r"Token id -?\d+ is out of vocabulary", "prompt"),
    (r"stop cannot contain an empty string\.", "stop"),
    (r"You can only use one kind of constraints for structured outputs .*", "structured_outputs"),
    (r"You can only either use constraints for structured outputs or tools, not both\.", "structured_outputs"),
    (r"The JSON schema is nested too deeply: .*", "structured_outputs.json"),
    (r"1 validation error:\n  Unsupported Media Type: Only 'application/json' is allowed", "body"),
)


def names_the_field(ours: Error, theirs: Error) -> bool:
    """Return whether two errors are the same, except that only ours names the field, and the right one."""
    if theirs["param"] is not None or {**ours, "param": None} != theirs:
        return False
    for pattern, param in _UNNAMED:
        found = re.fullmatch(pattern, ours["message"], re.DOTALL)
        if found is not None:
            return bool(ours["param"] == (param or found[1]))
    return False


_UNIONS = ("messages", "prompt", "repetition_detection", "response_format", "tools")
"""Fields of which vLLM takes many kinds."""


def lists_fewer_types(ours: Error, theirs: Error) -> bool:
    """Return whether ours names places and values that vLLM's list of errors has too, among the many of its unions."""
    if ours["status"] != theirs["status"] or not ours["type"] == theirs["type"] == "Bad Request":
        return False
    root = str(ours["param"]).partition(".")[0]
    our_places, their_places = places(ours["message"]), places(theirs["message"])
    return (
        root in _UNIONS
        and root == str(theirs["param"]).partition(".")[0]
        and bool(our_places)
        and all(any(_is_within(mine, other) for other in their_places) for mine in our_places)
        and {place for place, _ in our_places if not place.startswith(root)} == set()
    )


def _is_within(mine: Place, other: Place) -> bool:
    at_it = other[0] == mine[0] and mine[1] in (other[1], None)
    return at_it or (mine[1] is None and other[0].startswith(f"{mine[0]}."))


_LISTED = r"\d+ validation errors?:\n.*"
_TOO_LONG = r"This model's maximum context length is \d+ tokens\. However, your prompt contains {}"
_LENGTH = r"\d+ input tokens, which is longer than the maximum model length of \d+\. Please reduce the length of .*"
_NO_ROOM = r"\d+ input tokens and a reply needs at least 1 more, which is longer than the maximum model length of .*"
_THEIR_LENGTH = r"at least \d+ input tokens, which exceeds this limit even without any output tokens\. .*"
_CONSTRAINTS = (
    r"You (can only|must) use one kind of structured outputs constraint but (multiple|none) are specified: {.*}"
)
_PARTS = r"\d+ validation errors? for ValidatorIterator\n.*"
_CALL = r"messages\[\d+\]\.tool_calls\[\d+\] must be of type 'function', with a function\."
_TAG = r"Invalid (response_format|structured_outputs) structural_tag specification\."
_MALFORMED = ("Bad Request", "Bad Request")
_TYPE_FIRST = ("Bad Request", "BadRequestError")
_IDS_FIRST = r"when using `logprob_token_ids`, `logprobs` must be set( to true)?\."
_CHOICE_FIRST = r"When using `tool_choice`, `tools` must be set\.|Invalid value for `tool_choice`: .*"

TOO_LONG = (
    ErrorPair(_TOO_LONG.format(_LENGTH), _TOO_LONG.format(_THEIR_LENGTH), "input_tokens", "input_tokens"),
    ErrorPair(_TOO_LONG.format(_NO_ROOM), r"The decoder prompt \(length \d+\) plus the number of .*", "input_tokens"),
    ErrorPair(_TOO_LONG.format(_NO_ROOM), r"max_tokens must be at least 1, got 0\.", "input_tokens", "max_tokens"),
)
TYPES_FIRST = (
    ErrorPair(
        r"1 validation error:\n  logprob_token_ids.*", _IDS_FIRST, "logprob_token_ids", "logprob_token_ids", _TYPE_FIRST
    ),
    ErrorPair(
        r"1 validation error:\n  logprob_token_ids.*",
        _IDS_FIRST,
        "logprob_token_ids.0",
        "logprob_token_ids",
        _TYPE_FIRST,
    ),
    ErrorPair(r"2 validation errors:\n  tool_choice: .*", _CHOICE_FIRST, "tool_choice", "tool_choice", _TYPE_FIRST),
    ErrorPair(
        r"1 validation error:\n  truncation_side: .*",
        r"`logprob_token_ids` is not supported with beam search\.",
        "truncation_side",
        "logprob_token_ids",
        _TYPE_FIRST,
    ),
)
GRAMMARS = (
    ErrorPair(r"Invalid grammar specification: .*", _TAG, None, "response_format"),
    ErrorPair(r"Invalid grammar specification: .*", _TAG, None, "structured_outputs"),
    ErrorPair(r"structured_outputs\.structural_tag cannot be an empty string", _TAG, None, "structured_outputs"),
    ErrorPair(_CONSTRAINTS, _CONSTRAINTS, "structured_outputs"),
    ErrorPair(_CONSTRAINTS, _CONSTRAINTS, "response_format"),
)
WORDS = (
    *(
        ErrorPair(
            rf"{name} is out of range: \d+",
            r"Requested \w+ logprobs of \d+, which is greater than max allowed: \d+",
            name,
            name,
        )
        for name in ("logprobs", "prompt_logprobs")
    ),
    ErrorPair(
        r"The request takes about .* \(--max-request-mb\): .* for \d+ log-probabilities of \d+ tokens, n=\d+\.",
        r"Requested prompt logprobs of \d+, which is greater than max allowed: \d+",
        "prompt_logprobs",
        "prompt_logprobs",
    ),
    ErrorPair(
        r"The request takes about .* \(--max-request-mb\): .* for \d+ log-probabilities of \d+ tokens of a reply .*",
        r"Requested sample logprobs of \d+, which is greater than max allowed: \d+",
        "logprobs",
        "logprobs",
    ),
    ErrorPair(
        r"1 validation error:\n  messages: Input should be a valid list .*",
        r"'\w+' object is not iterable",
        "messages",
        types=("Bad Request", "BadRequestError"),
    ),
    ErrorPair(
        r"(token_id.* out-of-vocab token ids)\.", r"token_id.* ids\. Vocabulary size: \d+", "logit_bias", "logit_bias"
    ),
    ErrorPair(
        r"(token_id.* out-of-vocab token ids)\.",
        r"token_id.* ids\. Vocabulary size: \d+",
        "stop_token_ids",
        "stop_token_ids",
    ),
    ErrorPair(r"The chat template does not parse: (Expected .*) \(line \d+\)\.", r"Expected .*", "chat_template"),
    ErrorPair(
        r"Cannot set both `continue_final_message` and `add_generation_prompt` to True\.",
        r"continue_final_message and add_generation_prompt are not compatible\. .*",
        "continue_final_message",
    ),
    ErrorPair(
        r"messages\[\d+\]\.content\[\d+\] is of type '\w+'( \(.*\), but this model .*|, which .* not take)\.",
        r"\S+ is not a multimodal model",
        "messages",
    ),
    ErrorPair(r"messages\[\d+\]\.content\[\d+\]\.type is required\.", _PARTS, None),
    ErrorPair(r"messages\[\d+\]\.content\[\d+\] is of the unknown type '.*'\. Supported types: .*", _PARTS, None),
    ErrorPair(r"messages\[\d+\]\.content\[\d+\]\.type is required\.", _PARTS, "messages"),
    ErrorPair(r"messages\[\d+\]\.content\[\d+\] is of the unknown type '.*'\. Supported types: .*", _PARTS, "messages"),
    ErrorPair(_CALL, _LISTED, "messages", "0.ChatCompletionMessageFunctionToolCallParam.function", _MALFORMED),
    ErrorPair(_CALL, _LISTED, "messages", "0.ChatCompletionMessageFunctionToolCallParam.type", _MALFORMED),
    ErrorPair(
        r"Token id -\d+ is out of vocabulary",
        r"4 validation errors:\n  prompt\.0: .*",
        "prompt",
        "prompt.0",
        _MALFORMED,
    ),
    ErrorPair(
        r"1 validation error:\n  messages: Input should be a valid list .*",
        r"2 validation errors:\n  prompt: Field required .*\n  messages: Input should be a valid list .*",
        "messages",
        "prompt",
        _MALFORMED,
    ),
    ErrorPair(
        r"Token id -\d+ is out of vocabulary", r"1 validation error:\n  tokens\.0: .*", "tokens", "tokens.0", _MALFORMED
    ),
    ErrorPair(r"Token id \d+ is out of vocabulary", r"Token id \d+ is out of vocabulary", "token_ids"),
    ErrorPair(r"`input` must not be empty\.", r"Cannot apply chat template to an empty conversation\. .*", "input"),
    ErrorPair(r"n must be at most \d+, got \d+\.", r"n must be at most \d+, got \d+\. To increase this limit, .*", "n"),
    ErrorPair(
        r"Per-request media_io_kwargs are disabled on this route\.",
        r"Per-request media_io_kwargs are disabled by default .*",
        "media_io_kwargs",
        "media_io_kwargs",
    ),
    ErrorPair(
        r"Per-request mm_processor_kwargs are disabled on this route\.",
        r"Per-request mm_processor_kwargs are disabled by default .*",
        "mm_processor_kwargs",
        "mm_processor_kwargs",
    ),
    ErrorPair(
        r"`prompt_embeds` is not supported\.",
        r"You must set `--enable-prompt-embeds` to input `prompt_embeds`\.",
        "prompt_embeds",
        "prompt_embeds",
    ),
)
ENGINE = (
    ErrorPair(
        r"The engine reported an internal error for this sequence\.|"
        r"The grammar allows no further token, so the sequence cannot continue\.",
        r"Internal server error",
        None,
        None,
        ("InternalServerError", "InternalServerError"),
    ),
)
BROKEN = (
    ErrorPair(
        r"1 validation error:\n  structured_outputs: Input should be a valid dictionary .*",
        r"'\w+' object has no attribute 'get'",
        "structured_outputs",
        types=("Bad Request", "InternalServerError"),
        statuses=(400, 500),
    ),
)
SEVERAL = (
    ErrorPair(
        r"suffix is only supported for models with FIM completion rendering",
        r"suffix is not supported with truncate_prompt_tokens",
        "suffix",
        "suffix",
    ),
)


def is_one_of(pairs: tuple[ErrorPair, ...], ours: Error, theirs: Error) -> bool:
    """Return whether two errors are an intended pair."""
    return any(pair.applies(ours, theirs) for pair in pairs)
