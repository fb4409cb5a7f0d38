"""What the workers of a model are to have in common: the newest state that any of them announced."""

import random
from collections.abc import Iterator

from tokenwire.coordinator.types import Adapter
from tokenwire.v1 import inference_pb2 as pb

_NONCE_BITS = 16
_MAX_ADAPTER_ID = 2**31 - 1


class DesiredStates:
    """The target of each model, by its first name. A model that was never steered has none."""

    def __init__(self, stale_weights: bool = False) -> None:
        self._stale_weights = stale_weights
        self._desired: dict[str, pb.ServingState] = {}
        self._issued: dict[str, int] = {}
        # Two coordinators never give their operations the same epoch, so one of them is always the newer.
        self._nonce = random.getrandbits(_NONCE_BITS)

    def observe(self, model: str, state: pb.ServingState) -> bool:
        """Learn of a worker's state; returns whether that is the target now."""
        known = self._desired.get(model, pb.ServingState())
        # Operations that cross each other can leave two states of one epoch: all coordinators choose the same.
        if state.strayed or state.weights_fault or _age(state) <= _age(known):
            return False
        self._desired[model] = _content(state)
        return True

    def of(self, model: str) -> pb.ServingState | None:
        """Return a model's target. Not to be changed."""
        return self._desired.get(model)

    def next_epoch(self, model: str) -> int:
        """Return the epoch of a new operation, newer than all that were seen or given out here."""
        target = self._desired.get(model)
        newest = max(target.epoch if target else 0, self._issued.get(model, 0))
        epoch = ((newest >> _NONCE_BITS) + 1) << _NONCE_BITS | self._nonce
        self._issued[model] = epoch
        return epoch

    def has_drifted(self, model: str, state: pb.ServingState) -> bool:
        """Tell whether a worker has to be brought to the target."""
        target = self._desired.get(model)
        return target is not None and not state.strayed and _content(state) != target

    def out_of_sync(self, model: str, state: pb.ServingState, adapter_id: int = 0) -> str:
        """Say why a worker gets no new requests (for an adapter); empty when it does."""
        target = self._desired.get(model, pb.ServingState())
        if state.weights_fault:
            return f"its weights are broken: {state.weights_fault}"
        if target.epoch and not self._stale_weights and _weights(state) != _weights(target):
            return f"it has the weights {state.weight_version}, not {target.weight_version}"
        if target.epoch and (state.paused, state.sleeping) != (target.paused, target.sleeping):
            return f"it is {'paused' if state.paused else 'running'}, unlike the others"
        if adapter_id and all(adapter.id != adapter_id for adapter in state.adapters):
            return "it does not have the adapter"
        return ""

    def adapters(self, model: str | None = None) -> Iterator[Adapter]:
        """List the adapters of a model, or of all."""
        for name, target in self._desired.items():
            if model in (None, name):
                yield from (Adapter(name, lora) for lora in target.adapters)

    def adapter(self, name: str) -> Adapter | None:
        """Find an adapter by its name."""
        return next((adapter for adapter in self.adapters() if adapter.lora.name == name), None)

    def new_adapter_id(self, epoch: int) -> int:
        """Return an id for an adapter that an operation loads: workers get it from there, all the same one."""
        taken = {adapter.lora.id for adapter in self.adapters()}
        number = epoch % _MAX_ADAPTER_ID + 1
        while number in taken:
            number = number % _MAX_ADAPTER_ID + 1
        return number


def _age(state: pb.ServingState) -> tuple[int, bytes]:
    return state.epoch, _content(state).SerializeToString(deterministic=True) if state.epoch else b""


def _content(state: pb.ServingState) -> pb.ServingState:
    """Copy a state without what is the worker's own."""
    content = pb.ServingState()
    content.CopyFrom(state)
    content.ClearField("revision")
    return content


def _weights(state: pb.ServingState) -> tuple[int, str]:
    return state.weights_epoch, state.weight_version
