"""Records of admin operations: which of them still decide something, and what they lead to together."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tokenwire.v1 import inference_pb2 as pb

MAX_SIGNATURES = 4
"""Keys that coordinators sign with at the same time, while one replaces another."""
_MAX_UNLOADED = 256
"""Unloaded adapters that are remembered, so that no older record loads them again."""

_EMPTY = pb.ServingState()

_Slot = tuple[str, str]
"""Something that one operation decides: a field of Operation, and the name of an adapter."""


class _ParsedRecord(NamedTuple):
    operation: pb.Operation
    record: pb.OperationRecord

    @property
    def is_whole(self) -> bool:
        """Whether it was made of a worker's whole state."""
        return self.operation.HasField("adapters")


def latest(records: Iterable[pb.OperationRecord]) -> list[pb.OperationRecord]:
    """Return the records that still decide something, oldest first, and the newest one. Raises DecodeError."""
    entries = sorted(_merge(records), key=_order)
    recorded = {entry.operation.epoch for entry in entries if not entry.is_whole}
    deciding: dict[_Slot, _ParsedRecord] = {}
    for entry in entries:
        # What an operation did to a worker without records is known better from its record.
        if entry.is_whole and entry.operation.epoch in recorded:
            continue
        if entry.is_whole:
            deciding = {slot: each for slot, each in deciding.items() if slot[0] != "adapter"}
        deciding.update(dict.fromkeys(_slots(entry.operation), entry))
    _forget_unloaded(deciding)
    kept = {entry.record.operation for entry in deciding.values()}
    return [entry.record for entry in entries if entry.record.operation in kept]


def fold(records: Iterable[pb.OperationRecord], base: pb.ServingState = _EMPTY) -> pb.ServingState:
    """Return the state to which the latest records lead from another one, and them in it.

    From an empty one, its weight version is empty unless one of them sets it.
    """
    state = pb.ServingState()
    state.CopyFrom(base)
    adapters = {adapter.name: adapter for adapter in base.adapters}
    del state.adapters[:], state.records[:]
    for record in records:
        operation = pb.Operation.FromString(record.operation)
        if operation.HasField("pause"):
            pause = operation.pause
            state.paused, state.sleeping, state.sleep_level = pause.paused, pause.sleeping, pause.sleep_level
            state.awake_parts[:] = pause.awake_parts
        if operation.HasField("weights"):
            state.weights_epoch, state.weights_path = operation.weights.epoch, operation.weights.path
        if operation.HasField("weight_version"):
            state.weight_version = operation.weight_version
        if operation.HasField("adapters"):
            adapters = {adapter.name: adapter for adapter in operation.adapters.adapters}
        if operation.HasField("load_adapter"):
            adapters[operation.load_adapter.name] = operation.load_adapter
        adapters.pop(operation.unload_adapter, None)
        state.epoch = max(state.epoch, operation.epoch)
        state.records.append(record)
    state.adapters.extend(sorted(adapters.values(), key=lambda adapter: adapter.id))
    return state


def _merge(records: Iterable[pb.OperationRecord]) -> Iterator[_ParsedRecord]:
    """Yield each record once, with the signatures of all its copies."""
    signatures: dict[bytes, list[bytes]] = {}
    for record in records:
        found = signatures.setdefault(record.operation, [])
        found += [each for each in record.signatures if each not in found]
    for operation, found in signatures.items():
        record = pb.OperationRecord(operation=operation, signatures=found[:MAX_SIGNATURES])
        yield _ParsedRecord(pb.Operation.FromString(operation), record)


def _order(entry: _ParsedRecord) -> tuple[int, int, bytes]:
    """Return what is greater of the newer record: of two whole states with one epoch, one missed new weights."""
    weights = entry.operation.weights.epoch if entry.is_whole else 0
    return entry.operation.epoch, weights, entry.record.operation


def _slots(operation: pb.Operation) -> Iterator[_Slot]:
    yield "newest", ""
    for field, value in operation.ListFields():
        match field.name:
            case "pause" | "weights" | "weight_version" | "adapters":
                yield field.name, ""
            case "load_adapter":
                yield "adapter", value.name
            case "unload_adapter":
                yield "adapter", value


def _forget_unloaded(deciding: dict[_Slot, _ParsedRecord]) -> None:
    unloaded = [slot for slot, entry in deciding.items() if slot[0] == "adapter" and entry.operation.unload_adapter]
    unloaded.sort(key=lambda slot: _order(deciding[slot]))
    for slot in unloaded[:-_MAX_UNLOADED]:
        del deciding[slot]
