"""The desired state of each model: what the newest believed operations that its workers repeat lead to."""

import random
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from tokenwire.coordinator.fleet.operation_trust import NONCE_BITS, OperationTrust
from tokenwire.coordinator.fleet.weight_versions import WeightVersions
from tokenwire.protocol.operation_records import fold, latest
from tokenwire.v1 import inference_pb2 as pb

_MAX_ADAPTER_ID = 2**31 - 1
_LONGEST_FAULT = 1000
"""Characters of a worker's error that are shown."""
_INITIAL = pb.ServingState()


@dataclass(frozen=True, slots=True)
class Adapter:
    """A LoRA adapter that requests may name."""

    model: str
    """First name of its base model."""
    lora: pb.LoraAdapter


class DesiredStates:
    """Desired states by the first name of the model. A model without admin operations so far has none."""

    def __init__(self, stale_weights: bool = False, trust: OperationTrust | None = None) -> None:
        self._stale_weights = stale_weights
        self._trust = trust or OperationTrust()
        self._desired: dict[str, pb.ServingState] = {}
        self._versions: dict[str, WeightVersions] = {}
        self._issued: dict[str, int] = {}
        # Two coordinators never give their operations the same epoch, so one of them is always the newer.
        self._nonce = random.getrandbits(NONCE_BITS)

    def observe(self, model: str, state: pb.ServingState) -> bool:
        """Update the desired state by the records in an announced one; return whether it changed."""
        if not state.epoch and state.weight_version:
            self.versions(model).observe_initial(state.weight_version)
        current = self._desired.get(model, _INITIAL)
        known = {record.operation for record in current.records}
        believed = self._trust.believed(model, state, current.epoch)
        new = [self._trust.renew(record) for record in believed if record.operation not in known]
        records = latest([*current.records, *new]) if new else current.records
        if all(record.operation in known for record in records):
            return False
        folded = fold(records)
        assert folded.epoch >= current.epoch, f"the desired epoch of {model} goes back"
        self._desired[model] = folded
        if self._trust.follows_everything:
            self.versions(model).observe(folded)
        return True

    def get(self, model: str) -> pb.ServingState | None:
        """Return the desired state of a model; not to be modified."""
        return self._desired.get(model)

    def versions(self, model: str) -> WeightVersions:
        """Return the versions of a model's weights."""
        found = self._versions.get(model)
        if found is None:
            found = self._versions[model] = WeightVersions()
        return found

    def keep(self, models: Collection[str]) -> None:
        """Forget models that no worker announces, unless operations were ordered on them."""
        for gone in self._versions.keys() - models - self._desired.keys():
            del self._versions[gone]

    @property
    def allows_stale_weights(self) -> bool:
        """Whether workers with other weights than these get requests."""
        return self._stale_weights

    @property
    def follows_weights(self) -> bool:
        """Whether it is known here which weights workers are to have."""
        return self._trust.follows_everything

    def reload_keys(self) -> bool:
        """Use changed keys from now on, also for the records that are known; return whether there are any."""
        if not self._trust.reload():
            return False
        for desired in self._desired.values():
            renewed = [self._trust.renew(record) for record in desired.records]
            del desired.records[:]
            desired.records.extend(renewed)
        return True

    def next_epoch(self, model: str) -> int:
        """Return the epoch for a new operation, newer than all epochs believed or issued here."""
        newest = max(self._desired.get(model, _INITIAL).epoch, self._issued.get(model, 0))
        epoch = max(self._trust.now(), ((newest >> NONCE_BITS) + 1) << NONCE_BITS) | self._nonce
        self._issued[model] = epoch
        return epoch

    def sign(self, operation: pb.Operation) -> pb.OperationRecord:
        """Return the record of an operation."""
        return self._trust.sign(operation.SerializeToString(deterministic=True))

    def target(self, model: str, state: pb.ServingState) -> pb.ServingState:
        """Return what a worker that announces a state is to adopt: what is desired, and its own where nothing is."""
        desired, target = self._desired.get(model, _INITIAL), pb.ServingState()
        target.CopyFrom(desired)
        if not self._trust.follows_everything:
            target.CopyFrom(_shared_part(state))
            del target.adapters[:]
            target.adapters.extend(desired.adapters)
            target.records.extend(desired.records)
        # Without a label, the one that the worker has given to weights that it is to keep.
        elif not desired.weight_version and state.weights_epoch == desired.weights_epoch:
            target.weight_version = state.weight_version
        target.epoch = max(desired.epoch, state.epoch)
        return target

    def has_drifted(self, model: str, state: pb.ServingState) -> bool:
        """Return whether a worker has to be reconciled."""
        desired = self._desired.get(model)
        if desired is None or state.unmanaged or self.set_aside(model, state):
            return False
        return self._differs(model, state) or (bool(state.records) and self._lacks_records(desired, state))

    def set_aside(self, model: str, state: pb.ServingState) -> str:
        """Return why a worker gets neither requests nor operations, whatever else it announces; empty if it does."""
        newest = self._desired.get(model, _INITIAL).epoch
        if problem := self._trust.problem(model, state, newest):
            return problem
        unrecorded = self._trust.needs_signatures and not state.records and not state.unmanaged
        if unrecorded and state.epoch > newest and self._differs(model, state):
            return (
                f"it carried out operation {state.epoch}, of which it has no record, as workers before protocol "
                "version 1.6 do, or because a coordinator without a key ordered it: restart the worker"
            )
        return ""

    def out_of_sync(self, model: str, state: pb.ServingState, adapter_id: int = 0) -> str:
        """Return why a worker gets no new requests (for an adapter); empty when it is in sync."""
        if state.weights_fault:
            return f"its weights are inconsistent: {state.weights_fault[:_LONGEST_FAULT]}"
        if problem := self.set_aside(model, state):
            return f"it is set aside: {problem}"
        desired = self._desired.get(model, _INITIAL)
        follows = self._trust.follows_everything
        if follows and not self._stale_weights and not _has_weights(state, desired):
            wanted = desired.weight_version or "those that it started with"
            return f"it has the weights {state.weight_version}, not {wanted}"
        if (state.paused, state.sleeping) != (desired.paused, desired.sleeping):
            return f"it is {'paused' if state.paused else 'running'}, unlike the desired state"
        if adapter_id and all(adapter.id != adapter_id for adapter in state.adapters):
            return "the adapter is not loaded"
        return ""

    def holds(self, model: str, state: pb.ServingState) -> bool:
        """Return whether a worker that announces a state holds its requests because operations ordered that."""
        desired = self._desired.get(model, _INITIAL)
        return (state.paused or state.sleeping) and (desired.paused or desired.sleeping)

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

    def _differs(self, model: str, state: pb.ServingState) -> bool:
        target = self.target(model, state)
        return _shared_part(state) != _shared_part(target)

    def _lacks_records(self, desired: pb.ServingState, state: pb.ServingState) -> bool:
        announced = {record.operation: record.signatures for record in state.records}
        if any(record.operation not in announced for record in desired.records):
            return True
        signed = desired.records if self._trust.needs_signatures else ()
        return any(signature not in announced[each.operation] for each in signed for signature in each.signatures)


def _shared_part(state: pb.ServingState) -> pb.ServingState:
    """Return a copy of a state without the fields specific to its worker, and those of a newer protocol."""
    shared = pb.ServingState()
    shared.CopyFrom(state)
    shared.ClearField("revision")
    shared.ClearField("records")
    shared.DiscardUnknownFields()
    return shared


def _has_weights(state: pb.ServingState, desired: pb.ServingState) -> bool:
    return state.weights_epoch == desired.weights_epoch and desired.weight_version in ("", state.weight_version)
