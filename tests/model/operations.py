"""The admin operations of the model: their requests, and what each of them promises."""

import enum
from functools import cache

from google.protobuf.message import Message

from tokenwire.v1 import control_pb2 as control
from tokenwire.v1 import inference_pb2 as pb


class Verb(enum.StrEnum):
    """What an operation does."""

    PAUSE = "pause"
    PAUSE_WAIT = "pause, wait"
    RESUME = "resume"
    LABEL = "label the weights"
    LOAD = "load weights"


WEIGHTS_PATH = "/"
"""A directory that every machine has; the engine of the model reads nothing from it."""


def version_of(number: int) -> str:
    """Return the version that an operation sets."""
    return f"version {number}"


def request_of(verb: Verb, number: int, epoch: int) -> tuple[str, bytes]:
    """Return the control call of an operation, and its request."""
    method, request = _message(verb, number, epoch)
    return method, request.SerializeToString(deterministic=True)


def _message(verb: Verb, number: int, epoch: int) -> tuple[str, Message]:
    match verb:
        case Verb.PAUSE:
            return "PauseGeneration", control.PauseGenerationRequest(mode=control.PAUSE_MODE_KEEP, epoch=epoch)
        case Verb.PAUSE_WAIT:
            return "PauseGeneration", control.PauseGenerationRequest(mode=control.PAUSE_MODE_WAIT, epoch=epoch)
        case Verb.RESUME:
            return "ResumeGeneration", control.ResumeGenerationRequest(epoch=epoch)
        case Verb.LABEL:
            request = control.SetWeightVersionRequest(weight_version=version_of(number), epoch=epoch)
            return "SetWeightVersion", request
        case Verb.LOAD:
            load = control.LoadWeightsRequest(path=WEIGHTS_PATH, weight_version=version_of(number), epoch=epoch)
            return "LoadWeights", load


@cache
def undone(
    serving: bytes, verbs: tuple[Verb, ...], epochs: tuple[tuple[int, int], ...], confirmed: tuple[int, ...]
) -> str:
    """Return which operation that all workers confirmed was undone, though no newer one changes the same; or nothing.

    `epochs` has the epoch and number of every operation that began, `confirmed` the numbers that all confirmed.
    """
    state = pb.ServingState.FromString(serving)
    begun = {number: epoch for epoch, number in epochs}
    for number in confirmed:
        rivals = [
            each for each in begun if _field(verbs[each]) == _field(verbs[number]) and begun[each] >= begun[number]
        ]
        if not any(_holds(state, verbs[each], each) for each in rivals):
            return f"operation {number} ({verbs[number]}) was confirmed by all workers and is undone"
    return ""


def _field(verb: Verb) -> str:
    return "weights" if verb in (Verb.LABEL, Verb.LOAD) else "pause"


def _holds(state: pb.ServingState, verb: Verb, number: int) -> bool:
    if verb in (Verb.PAUSE, Verb.PAUSE_WAIT):
        return state.paused
    return not state.paused if verb is Verb.RESUME else state.weight_version == version_of(number)
