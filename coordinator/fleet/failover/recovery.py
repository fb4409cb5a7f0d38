"""How a lost sequence is resumed so that its tokens are those of one run, and the submission that resumes it.

An engine that gets prompt and tokens as its prompt continues exactly if these alone determine the next token.
Otherwise the sequence is replayed from its start: the generator of a seeded request has advanced, and grammars, bad
words and penalties depend on the output alone. In vLLM 0.32: v1/sample, v1/structured_output.
Some engines draw the noise of a seeded request from its seed and the position: there it continues like a greedy one.
Where tokens depend on the rest of the batch (most arithmetic except float32 on CPUs), a sequence continued from its
tokens may differ from an uninterrupted run, as any two runs may. One that must not is replayed.
"""

import enum
import random
from collections.abc import Sequence
from dataclasses import replace

from tokenwire.coordinator.fleet.submission import Submission
from tokenwire.protocol.seeds import has_seed, is_greedy
from tokenwire.v1 import inference_pb2 as pb

_LARGEST_SEED = (1 << 62) - 1
# Parameters whose effect depends on where the output starts. Not the repetition penalty: it counts the prompt too.
_OUTPUT_ONLY = (
    "structured_outputs",
    "repetition_detection",
    "thinking_token_budget",
    "extra_args_json",
)
_CONSTRAINED = ("structured_outputs", "extra_args_json")
"""Constraints on the whole output: a continuation is not valid without its first part."""


class Recovery(enum.Enum):
    """How a sequence is resumed."""

    CONTINUE = enum.auto()
    """From the prompt and the tokens so far."""
    REPLAY = enum.auto()
    """From the prompt, verifying the tokens so far."""
    NONE = enum.auto()
    """Not once it has tokens: their source is lost."""


def recovery_of(params: pb.SamplingParams, engines: pb.EngineCapabilities, exact: bool) -> Recovery:
    """Return how a request with these parameters is resumed on engines with these capabilities.

    exact: prefer an error to a reply that no single run has generated.
    """
    if params.kv_transfer_params_json or params.ec_transfer_params_json:
        return Recovery.NONE
    greedy, seeded = is_greedy(params), has_seed(params)
    if _depends_on_output_start(params):
        if greedy or seeded:
            return Recovery.REPLAY
        return Recovery.NONE if exact or not can_continue_plausibly(params) else Recovery.CONTINUE
    if not greedy and not seeded:
        return Recovery.CONTINUE  # the next tokens have the same distribution
    if (greedy or engines.positional_seeds) and (engines.batch_invariant or not exact):
        return Recovery.CONTINUE
    return Recovery.REPLAY


def needs_single_run(params: pb.SamplingParams) -> bool:
    """Return whether a request has log-probabilities, which would be misleading for tokens of different runs."""
    return params.HasField("logprobs") or bool(params.logprob_token_ids)


def can_continue_plausibly(params: pb.SamplingParams) -> bool:
    """Return whether a continuation from the tokens so far is valid, even if it differs from an uninterrupted run."""
    if params.kv_transfer_params_json or params.ec_transfer_params_json or params.trace_decode_token_ids:
        return False
    return not any(params.HasField(name) for name in _CONSTRAINED)


def gets_seed(params: pb.SamplingParams) -> bool:
    """Return whether a request without a seed gets one, for a possible replay."""
    return _depends_on_output_start(params) and not is_greedy(params)


def keeps_place(params: pb.SamplingParams, engines: pb.EngineCapabilities, exact: bool) -> bool:
    """Return whether a request will not continue elsewhere without a visible effect, once it has tokens."""
    if engines.seeds and gets_seed(params):
        return True
    return recovery_of(params, engines, exact) is not Recovery.CONTINUE


def seed_for_replay(submission: Submission, engine: pb.EngineCapabilities) -> None:
    """Set a seed on a request that can be resumed only by a replay, which has to generate the same tokens.

    Not for an engine that may crash on seeds.
    """
    params = submission.sampling_params
    if engine.seeds and gets_seed(params) and not has_seed(params):
        seeded = _copy(params)
        seeded.seed = random.randint(0, _LARGEST_SEED)  # noqa: S311 (as vLLM draws its own)
        submission.sampling_params = seeded


def remainder(submission: Submission, index: int, token_ids: Sequence[int], prompt_scored: bool) -> Submission:
    """Return the submission of the remainder of one of a request's sequences.

    `token_ids` is the part of the output that becomes part of the prompt: empty for a replay.
    """
    params = _copy(submission.sampling_params)
    if params.min_tokens:
        params.min_tokens = max(0, params.min_tokens - len(token_ids))
    if prompt_scored:
        params.ClearField("prompt_logprobs")
        params.ClearField("prompt_logprob_start")
        params.ClearField("prompt_logprob_token_ids")
    return replace(
        submission,
        start=index,
        prompt_token_ids=[*submission.prompt_token_ids, *token_ids] if token_ids else submission.prompt_token_ids,
        sampling_params=params,
        # A worker may have sent too many.
        max_tokens=None if submission.max_tokens is None else max(0, submission.max_tokens - len(token_ids)),
    )


def _copy(params: pb.SamplingParams) -> pb.SamplingParams:
    copy = pb.SamplingParams()
    copy.CopyFrom(params)
    return copy


def _depends_on_output_start(params: pb.SamplingParams) -> bool:
    return bool(
        params.presence_penalty
        or params.frequency_penalty
        or params.bad_words
        or params.trace_decode_token_ids
        or any(params.HasField(name) for name in _OUTPUT_ONLY)
    )
