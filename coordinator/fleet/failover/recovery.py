"""How a request can go on elsewhere so that its tokens are those of an undisturbed run, and what a worker gets for it.

An engine that gets prompt and tokens as its prompt goes on exactly where all that decides the next token is in them.
Where more does, the request runs from its start again: the generator of a seeded request has been drawn from, and
grammars, bad words and penalties see only the output. Those of vLLM 0.32: v1/sample, v1/structured_output.
"""

import enum
import random
from collections.abc import Sequence

from tokenwire.seeds import NO_SEED, sequence_seed
from tokenwire.v1 import inference_pb2 as pb

_GREEDY_BELOW = 1e-5
_LARGEST_SEED = (1 << 62) - 1
# Have an effect that depends on where the output begins. The repetition penalty has none: it counts the prompt too.
_SEES_OUTPUT_ALONE = (
    "structured_outputs",
    "repetition_detection",
    "thinking_token_budget",
    "extra_args_json",
)


class Recovery(enum.Enum):
    """How to go on."""

    CONTINUE = enum.auto()
    """From the prompt and the tokens so far."""
    REPLAY = enum.auto()
    """From the prompt, as far as the tokens so far come out again."""
    NONE = enum.auto()
    """Not at all, once there are tokens: a part of the prompt's computation was elsewhere, and is gone."""


def recovery_of(params: pb.SamplingParams) -> Recovery:
    """Say how a request with these parameters goes on."""
    if params.kv_transfer_params_json or params.ec_transfer_params_json:
        return Recovery.NONE
    return Recovery.REPLAY if _sees_output_alone(params) or _has_seed(params) else Recovery.CONTINUE


def repeatable(submit: pb.Submit) -> pb.Submit:
    """Return the request with a seed where it can only go on by a replay, which must give the same tokens."""
    params = submit.sampling_params
    if recovery_of(params) is not Recovery.REPLAY or _is_greedy(params) or _has_seed(params):
        return submit
    seeded = pb.Submit()
    seeded.CopyFrom(submit)
    seeded.sampling_params.seed = random.randint(0, _LARGEST_SEED)  # noqa: S311 (as vLLM draws its own)
    return seeded


def remainder(submit: pb.Submit, index: int, token_ids: Sequence[int], prompt_scored: bool) -> pb.Submit:
    """Return what is left of one of a request's sequences, as a request of one sequence.

    `token_ids` is what the new prompt has of the output: nothing, for a replay.
    """
    rest = pb.Submit()
    rest.CopyFrom(submit)
    del rest.slots[:]
    rest.prompt_token_ids.extend(token_ids)
    params = rest.sampling_params
    if params.HasField("max_tokens"):
        params.max_tokens -= len(token_ids)
    if params.min_tokens:
        params.min_tokens = max(0, params.min_tokens - len(token_ids))
    if _has_seed(params):
        params.seed = sequence_seed(params.seed, index)
    if prompt_scored:
        params.ClearField("prompt_logprobs")
        params.ClearField("prompt_logprob_start")
        params.ClearField("prompt_logprob_token_ids")
    return rest


def _is_greedy(params: pb.SamplingParams) -> bool:
    return params.HasField("temperature") and params.temperature < _GREEDY_BELOW


def _has_seed(params: pb.SamplingParams) -> bool:
    return params.HasField("seed") and params.seed != NO_SEED and not _is_greedy(params)


def _sees_output_alone(params: pb.SamplingParams) -> bool:
    return bool(
        params.presence_penalty
        or params.frequency_penalty
        or params.bad_words
        or params.trace_decode_token_ids
        or any(params.HasField(name) for name in _SEES_OUTPUT_ALONE)
    )
