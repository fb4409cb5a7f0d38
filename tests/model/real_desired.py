"""The coordinator's real DesiredStates as pure functions of the state of one of them."""

from functools import cache
from typing import Any

from tests.model.operations import Verb, operation_of, request_of
from tests.model.real_worker import METHODS, encode
from tokenwire.coordinator.fleet.desired_state import DesiredStates
from tokenwire.coordinator.fleet.operation_trust import OperationTrust
from tokenwire.peer_auth.operation_keys import OperationKeys
from tokenwire.protocol.operation_records import fold
from tokenwire.v1 import control_pb2
from tokenwire.v1 import inference_pb2 as pb

MODEL = "model"
NOTHING = b""
"""The desired state of a model without admin operations."""
_MADE_UP = 5 << 16
_KEYS = OperationKeys("a key that all of the coordinators have")


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
def adoption(desired: bytes, serving: bytes) -> bytes:
    """Return the request that brings a worker to the desired state."""
    target = _restored(desired).target(MODEL, pb.ServingState.FromString(serving))
    return _encode(control_pb2.AdoptStateRequest(target=target))


@cache
def request(desired: bytes, verb: Verb, number: int, epoch: int) -> tuple[str, bytes]:
    """Return the control call of an operation, and its request."""
    states = _restored(desired)
    operation = operation_of(verb, number, epoch, states.get(MODEL) or pb.ServingState())
    operation.model, operation.epoch = MODEL, epoch
    if operation.HasField("weight_version"):
        operation.earlier_versions.extend(states.versions(MODEL).passed_on())
    method, request = request_of(verb, number, epoch)
    request.record.CopyFrom(states.sign(operation))
    return method, _encode(request)


@cache
def next_epoch(desired: bytes, issued: int, nonce: int) -> int:
    """Return the epoch of a coordinator's next operation, after the one that it issued last."""
    states = _restored(desired)
    states._nonce, states._issued[MODEL] = nonce, issued
    return states.next_epoch(MODEL)


@cache
def forged() -> bytes:
    """Return a state with a pause that nobody ordered, in a record that a worker made."""
    operation = pb.Operation(model=MODEL, epoch=_MADE_UP, pause=pb.PauseState(paused=True))
    record = pb.OperationRecord(operation=_encode(operation), signatures=[b"\0" * 32])
    return _encode(pb.ServingState(epoch=_MADE_UP, paused=True, records=[record]))


@cache
def replayed(verb: Verb, number: int, epoch: int) -> bytes:
    """Return a state with the record of one operation, as if there had never been another one."""
    _, sent = request(NOTHING, verb, number, epoch)
    record = METHODS[request_of(verb, number, epoch)[0]].FromString(sent).record
    return _encode(pb.ServingState(epoch=epoch, records=[record]))


@cache
def is_made_up(desired: bytes) -> bool:
    """Return whether a desired state has what nobody ordered."""
    return any(
        pb.Operation.FromString(record.operation).epoch == _MADE_UP
        for record in pb.ServingState.FromString(desired).records
    )


@cache
def newest_alone(desired: bytes) -> bytes:
    """Return a desired state without all but its newest operation."""
    records = pb.ServingState.FromString(desired).records
    return _encode(fold(records[-1:])) if desired else desired


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


def desired_states() -> DesiredStates:
    """Return the desired states of a coordinator that has just started, with the key of all of them."""
    return DesiredStates(trust=OperationTrust(lambda: _KEYS, clock=lambda: 0.0))


def _restored(desired: bytes) -> DesiredStates:
    states = desired_states()
    if desired:
        states.observe(MODEL, pb.ServingState.FromString(desired))
    return states


def _encode(message: Any) -> bytes:
    return bytes(message.SerializeToString(deterministic=True))
