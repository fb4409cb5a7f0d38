"""The desired state of each model: the newest serving state announced by any of its workers."""

import random
from collections.abc import Iterator
from dataclasses import dataclass

from tokenwire.v1 import inference_pb2 as pb

_NONCE_BITS = 16
_MAX_ADAPTER_ID = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Adapter:
    """A LoRA adapter that requests may name."""

    model: str
    """First name of its base model."""
    lora: pb.LoraAdapter


class DesiredStates:
    """Desired states by the first name of the model. A model without admin operations so far has none."""

    def __init__(self, stale_weights: bool = False) -> None:
        self._stale_weights = stale_weights
        self._desired: dict[str, pb.ServingState] = {}
        self._issued: dict[str, int] = {}
        # Two coordinators never give their operations the same epoch, so one of them is always the newer.
        self._nonce = random.getrandbits(_NONCE_BITS)

    def observe(self, model: str, state: pb.ServingState) -> bool:
        """Update the desired state from an announced one; return whether it changed."""
        current = self._desired.get(model, pb.ServingState())
        # Concurrent operations can leave two states of one epoch: all coordinators choose the same.
        if state.unmanaged or state.weights_fault or _order(state) <= _order(current):
            return False
        self._desired[model] = _shared_part(state)
        return True

    def get(self, model: str) -> pb.ServingState | None:
        """Return the desired state of a model; not to be modified."""
        return self._desired.get(model)

    def next_epoch(self, model: str) -> int:
        """Return the epoch for a new operation, newer than all epochs seen or issued here."""
        desired = self._desired.get(model)
        newest = max(desired.epoch if desired else 0, self._issued.get(model, 0))
        epoch = ((newest >> _NONCE_BITS) + 1) << _NONCE_BITS | self._nonce
        self._issued[model] = epoch
        return epoch

    def has_drifted(self, model: str, state: pb.ServingState) -> bool:
        """Return whether a worker has to be reconciled."""
        desired = self._desired.get(model)
        return desired is not None and not state.unmanaged and _shared_part(state) != desired

    def out_of_sync(self, model: str, state: pb.ServingState, adapter_id: int = 0) -> str:
        """Return why a worker gets no new requests (for an adapter); empty when it is in sync."""
        desired = self._desired.get(model, pb.ServingState())
        if state.weights_fault:
            return f"its weights are inconsistent: {state.weights_fault}"
        if desired.epoch and not self._stale_weights and _weights(state) != _weights(desired):
            return f"it has the weights {state.weight_version}, not {desired.weight_version}"
        if desired.epoch and (state.paused, state.sleeping) != (desired.paused, desired.sleeping):
            return f"it is {'paused' if state.paused else 'running'}, unlike the desired state"
        if adapter_id and all(adapter.id != adapter_id for adapter in state.adapters):
            return "the adapter is not loaded"
        return ""

    def adapters(self, model: str | None = None) -> Iterator[Adapter]:
        """Yield the adapters of a model, or of all models."""
        for name, desired in self._desired.items():
            if model in (None, name):
                yield from (Adapter(name, lora) for lora in desired.adapters)

    def adapter(self, name: str) -> Adapter | None:
        """Return an adapter by its name; None if there is none."""
        return next((adapter for adapter in self.adapters() if adapter.lora.name == name), None)

    def new_adapter_id(self, epoch: int) -> int:
        """Return an unused id for an adapter of a load operation, the same for all workers."""
        taken = {adapter.lora.id for adapter in self.adapters()}
        number = epoch % _MAX_ADAPTER_ID + 1
        while number in taken:
            number = number % _MAX_ADAPTER_ID + 1
        return number


def _order(state: pb.ServingState) -> tuple[int, int, bytes]:
    """Return what is greater of the newer state: of two with one epoch, one worker has missed an update of weights."""
    shared = _shared_part(state).SerializeToString(deterministic=True) if state.epoch else b""
    return state.epoch, state.weights_epoch, shared


def _shared_part(state: pb.ServingState) -> pb.ServingState:
    """Return a copy of a state without the fields specific to its worker, and those of a newer protocol."""
    shared = pb.ServingState()
    shared.CopyFrom(state)
    shared.ClearField("revision")
    shared.DiscardUnknownFields()
    return shared


def _weights(state: pb.ServingState) -> tuple[int, str]:
    return state.weights_epoch, state.weight_version
