"""The admin operations of the model: their requests, and what each of them promises."""

import enum
from collections.abc import Callable
from functools import cache
from typing import Any

from tokenwire.coordinator.fleet import operations
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


def request_of(verb: Verb, number: int, epoch: int) -> tuple[str, Any]:
    """Return the control call of an operation, and its request, without a record."""
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


def operation_of(verb: Verb, number: int, epoch: int, desired: pb.ServingState) -> pb.Operation:
    """Return what an operation sets, by what was desired before."""
    match verb:
        case Verb.PAUSE | Verb.PAUSE_WAIT:
            return operations.pause(desired)
        case Verb.RESUME:
            return operations.resume()
        case Verb.LABEL:
            return pb.Operation(weight_version=version_of(number))
        case Verb.LOAD:
            return operations.load_weights(epoch, WEIGHTS_PATH, version_of(number))


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
        for field, holds in _PROMISES.items():
            if verbs[number] not in holds:
                continue
            rivals = [each for each in begun if verbs[each] in holds and begun[each] >= begun[number]]
            if not any(holds[verbs[each]](state, each, begun[each]) for each in rivals):
                return f"operation {number} ({verbs[number]}) was confirmed by all workers, and its {field} is undone"
    return ""


def _is_paused(state: pb.ServingState, number: int, epoch: int) -> bool:
    return state.paused


def _is_running(state: pb.ServingState, number: int, epoch: int) -> bool:
    return not state.paused


def _has_label(state: pb.ServingState, number: int, epoch: int) -> bool:
    return state.weight_version == version_of(number)


def _has_weights(state: pb.ServingState, number: int, epoch: int) -> bool:
    return state.weights_epoch == epoch


_PROMISES: dict[str, dict[Verb, Callable[[pb.ServingState, int, int], bool]]] = {
    "pause state": {Verb.PAUSE: _is_paused, Verb.PAUSE_WAIT: _is_paused, Verb.RESUME: _is_running},
    "label": {Verb.LABEL: _has_label, Verb.LOAD: _has_label},
    "weights": {Verb.LOAD: _has_weights},
}
"""What operations promise by what they change."""
