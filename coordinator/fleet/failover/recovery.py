"""How a request can go on elsewhere so that its tokens are those of one run, and what a worker gets for it.

An engine that gets prompt and tokens as its prompt goes on exactly where all that decides the next token is in them.
Where more does, the request runs from its start again: the generator of a seeded request has been drawn from, and
grammars, bad words and penalties see only the output. Those of vLLM 0.32: v1/sample, v1/structured_output.
Some engines draw the noise of a seeded request from its seed and the position: there it goes on as a greedy one does.
Where tokens depend on what else is in the batch (most arithmetic but float32's on CPUs), a request that goes on from
its tokens may say something else than an undisturbed run, as any two runs may. One that must not is run again.
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
_HAS_FORM = ("structured_outputs", "extra_args_json")
"""The whole output has a form: what follows a part of it makes no sense by itself."""


class Recovery(enum.Enum):
    """How to go on."""

    CONTINUE = enum.auto()
    """From the prompt and the tokens so far."""
    REPLAY = enum.auto()
    """From the prompt, as far as the tokens so far come out again."""
    NONE = enum.auto()
    """Not at all, once there are tokens: what they came from is gone."""


def recovery_of(params: pb.SamplingParams, engines: pb.EngineCapabilities, exact: bool) -> Recovery:
    """Say how a request with these parameters goes on among such engines.

    exact: an error is wanted rather than a reply that no single run has given.
    """
    if params.kv_transfer_params_json or params.ec_transfer_params_json:
        return Recovery.NONE
    greedy, seeded = _is_greedy(params), _has_seed(params)
    if _sees_output_alone(params):
        if greedy or seeded:
            return Recovery.REPLAY
        return Recovery.NONE if exact or not can_go_on_plausibly(params) else Recovery.CONTINUE
    if not greedy and not seeded:
        return Recovery.CONTINUE  # whatever comes is drawn as it would have been
    if (greedy or engines.positional_seeds) and (engines.batch_invariant or not exact):
        return Recovery.CONTINUE
    return Recovery.REPLAY


def wants_one_run(params: pb.SamplingParams) -> bool:
    """Tell whether a request asks for log-probabilities: those of tokens that no run has given mislead."""
    return params.HasField("logprobs") or bool(params.logprob_token_ids)


def can_go_on_plausibly(params: pb.SamplingParams) -> bool:
    """Tell whether what follows the tokens so far makes sense, though an undisturbed run would say something else."""
    if params.kv_transfer_params_json or params.ec_transfer_params_json or params.trace_decode_token_ids:
        return False
    return not any(params.HasField(name) for name in _HAS_FORM)


def gets_seed(params: pb.SamplingParams) -> bool:
    """Tell whether a request gets a seed for its replay, if it has none."""
    return _sees_output_alone(params) and not _is_greedy(params)


def seed_for_replay(submit: pb.Submit, engine: pb.EngineCapabilities) -> None:
    """Give a request a seed where only a replay can go on with it, which must give the same tokens.

    Not on an engine that may die of seeds.
    """
    params = submit.sampling_params
    if engine.seeds and gets_seed(params) and not _has_seed(params):
        params.seed = random.randint(0, _LARGEST_SEED)  # noqa: S311 (as vLLM draws its own)


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
