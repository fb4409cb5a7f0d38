"""The coordinator's real DesiredStates as pure functions of the state of one of them."""

from functools import cache

from tests.model.real_worker import encode
from tokenwire.coordinator.fleet.desired_state import DesiredStates
from tokenwire.v1 import inference_pb2 as pb

MODEL = "model"
NOTHING = b""
"""The desired state of a model without admin operations."""


@cache
def observed(desired: bytes, serving: bytes) -> bytes:
    """Return the desired state after a worker's state was announced."""
    states = _restored(desired)
    states.observe(MODEL, pb.ServingState.FromString(serving))
    after = states.get(MODEL)
    return NOTHING if after is None else encode(after)


@cache
def has_drifted(desired: bytes, serving: bytes) -> bool:
    """Return whether a worker has to be reconciled."""
    return _restored(desired).has_drifted(MODEL, pb.ServingState.FromString(serving))


@cache
def next_epoch(desired: bytes, issued: int, nonce: int) -> int:
    """Return the epoch of a coordinator's next operation, after the one that it issued last."""
    states = _restored(desired)
    states._nonce, states._issued[MODEL] = nonce, issued
    return states.next_epoch(MODEL)


@cache
def epoch_of(serving: bytes) -> int:
    """Return the epoch of a state."""
    return pb.ServingState.FromString(serving).epoch


@cache
def revision_of(serving: bytes) -> int:
    """Return the revision of a state."""
    return pb.ServingState.FromString(serving).revision


@cache
def shared_part(serving: bytes) -> bytes:
    """Return a state without its revision: what all workers are to have."""
    state = pb.ServingState.FromString(serving)
    state.ClearField("revision")
    return encode(state)


@cache
def is_unmanaged(serving: bytes) -> bool:
    """Return whether a state was changed outside admin operations."""
    return pb.ServingState.FromString(serving).unmanaged


def _restored(desired: bytes) -> DesiredStates:
    states = DesiredStates()
    if desired:
        states.observe(MODEL, pb.ServingState.FromString(desired))
    return states
