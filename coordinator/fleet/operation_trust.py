"""Which operations that workers repeat a coordinator follows: signed ones, or, without keys, those it is asked to."""

import enum
import time
from collections.abc import Callable, Iterator

from google.protobuf.message import DecodeError

from tokenwire.peer_auth.operation_keys import OPERATIONS_KEY_FLAG, OperationKeys
from tokenwire.v1 import inference_pb2 as pb

NONCE_BITS = 16
"""The lowest bits of an epoch are a coordinator's own number, the others are seconds since 1970."""
_DAY_S = 24 * 60 * 60
_MAX_RECORDS, _MAX_RECORD_BYTES = 4096, 64 * 1024
_MAX_VERDICTS = 2 * _MAX_RECORDS
_MAX_SCANNED, _MAX_SCANNED_BYTES = 256, 64 * 2**20
"""States that are remembered, and how large together: hostile workers may announce large ones, and often."""
_NOT_OURS = (
    "it repeats an operation that no key of ours signed: somebody ordered it with another key, or without one. Add the "
    f"key to {OPERATIONS_KEY_FLAG}, or restart the worker"
)


class Unsigned(enum.Enum):
    """What a coordinator without keys follows."""

    NOTHING = enum.auto()
    ADAPTERS = enum.auto()
    EVERYTHING = enum.auto()

    @classmethod
    def by_routes(cls, rl: bool, lora: bool) -> "Unsigned":
        """Return what a coordinator follows that serves these admin routes."""
        return cls.EVERYTHING if rl else cls.ADAPTERS if lora else cls.NOTHING


class OperationTrust:
    """Verifies each record once, since states repeat their records on each change."""

    def __init__(
        self,
        keys: Callable[[], OperationKeys] | None = None,
        unsigned: Unsigned = Unsigned.EVERYTHING,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`unsigned` is what is followed without `keys`."""
        self._current_keys = keys
        self._keys = None if keys is None else keys()
        self._follows = Unsigned.EVERYTHING if self._keys else unsigned
        self._clock = clock
        self._verdicts: dict[tuple[str, bytes], tuple[str, int]] = {}
        """By model and record: why it is not believed, and its epoch."""
        self._scanned: dict[int, tuple[pb.ServingState, str, int]] = {}
        """States by id, each with what is wrong with its records, and the highest epoch of those that are believed."""
        self._scanned_bytes = 0

    @property
    def follows_anything(self) -> bool:
        """Whether operations of others matter here."""
        return self._follows is not Unsigned.NOTHING

    @property
    def follows_everything(self) -> bool:
        """Whether all operations do, not only those on adapters."""
        return self._follows is Unsigned.EVERYTHING

    @property
    def needs_signatures(self) -> bool:
        """Whether there are keys."""
        return self._keys is not None

    def reload(self) -> bool:
        """Use changed keys from now on; return whether there are any."""
        keys = None if self._current_keys is None else self._current_keys()
        if keys is self._keys:
            return False
        self._keys = keys
        self._verdicts.clear()
        self._scanned.clear()
        self._scanned_bytes = 0
        return True

    def sign(self, operation: bytes) -> pb.OperationRecord:
        """Return the record of a serialized operation."""
        return pb.OperationRecord(operation=operation) if self._keys is None else self._keys.sign(operation)

    def renew(self, record: pb.OperationRecord) -> pb.OperationRecord:
        """Return a believed record as workers are to repeat it: with a signature of the key that signs now."""
        return record if self._keys is None else self._keys.sign(record.operation)

    def believed(self, model: str, state: pb.ServingState, newest: int) -> Iterator[pb.OperationRecord]:
        """Yield the announced records that are followed; `newest` is the highest epoch that is believed so far."""
        if not self.follows_anything or len(state.records) > _MAX_RECORDS:
            return
        for record in state.records:
            if self._is_believed(model, record, newest):
                yield record
        is_whole = state.epoch and not state.records and not (state.unmanaged or state.weights_fault)
        if is_whole and self._keys is None and not self._is_ahead(state.epoch, newest):
            yield _whole(model, state, self.follows_everything)

    def problem(self, model: str, state: pb.ServingState, newest: int) -> str:
        """Return why an announced state cannot be that of an honest worker of this fleet; empty if it can."""
        if not self.follows_anything:
            return ""
        problem, epoch = self._scan(model, state)
        if problem:
            return problem
        highest = max(state.epoch, 0 if self._keys else epoch)
        return _ahead(highest) if self._is_ahead(highest, newest) else ""

    def now(self) -> int:
        """Return the epoch of this second, without a coordinator's own number."""
        return int(self._clock()) << NONCE_BITS

    def _is_believed(self, model: str, record: pb.OperationRecord, newest: int) -> bool:
        problem, epoch = self._judge(model, record)
        return not problem and (self._keys is not None or not self._is_ahead(epoch, newest))

    def _scan(self, model: str, state: pb.ServingState) -> tuple[str, int]:
        """Judge all records of a state, once: routing asks for the result again and again."""
        scanned, problem, highest = self._scanned.get(id(state), (None, "", 0))
        if scanned is not state:
            problem, highest = self._scan_records(model, state)
            self._remember(state, problem, highest)
        return problem, highest

    def _remember(self, state: pb.ServingState, problem: str, highest: int) -> None:
        """Keep what was found of a state, and forget those before for which there is no room."""
        self._scanned[id(state)] = state, problem, highest
        self._scanned_bytes += state.ByteSize()
        while len(self._scanned) > _MAX_SCANNED or self._scanned_bytes > _MAX_SCANNED_BYTES:
            forgotten, _, _ = self._scanned.pop(next(iter(self._scanned)))
            self._scanned_bytes -= forgotten.ByteSize()

    def _scan_records(self, model: str, state: pb.ServingState) -> tuple[str, int]:
        if len(state.records) > _MAX_RECORDS:
            return f"it repeats more than {_MAX_RECORDS} operations", 0
        highest = 0
        for record in state.records:
            problem, epoch = self._judge(model, record)
            if problem:
                return problem, 0
            highest = max(highest, epoch)
        return "", highest

    def _judge(self, model: str, record: pb.OperationRecord) -> tuple[str, int]:
        key = model, record.SerializeToString(deterministic=True)
        if key not in self._verdicts:
            if len(self._verdicts) >= _MAX_VERDICTS:
                self._verdicts.clear()
            self._verdicts[key] = self._verdict(model, record)
        return self._verdicts[key]

    def _verdict(self, model: str, record: pb.OperationRecord) -> tuple[str, int]:
        if len(record.operation) > _MAX_RECORD_BYTES:
            return f"it repeats an operation of {len(record.operation):,} bytes", 0
        if self._keys is not None and not self._keys.verify(record):
            return _NOT_OURS, 0
        try:
            operation = pb.Operation.FromString(record.operation)
        except DecodeError:
            return "it repeats an operation that cannot be read", 0
        if operation.model != model:
            return f"it repeats an operation on another model, {operation.model[:100]!r}: restart the worker", 0
        return "", operation.epoch

    def _is_ahead(self, epoch: int, newest: int) -> bool:
        """Return whether nobody can have given an epoch, even if our clock or that of another is a day off."""
        return epoch > max(self.now(), newest) + (_DAY_S << NONCE_BITS)


def _ahead(epoch: int) -> str:
    return (
        f"it announces operation {epoch}, more than a day ahead of this clock: restart the worker, or set the clocks "
        "of the coordinators"
    )


def _whole(model: str, state: pb.ServingState, everything: bool) -> pb.OperationRecord:
    """Return a record of all that a worker without records announces, as workers before minor version 6 do."""
    operation = pb.Operation(model=model, epoch=state.epoch, adapters=pb.AdapterSet(adapters=state.adapters))
    if everything:
        operation.pause.CopyFrom(pause_of(state))
        operation.weights.CopyFrom(pb.Weights(epoch=state.weights_epoch, path=state.weights_path))
        operation.weight_version = state.weight_version
    operation.DiscardUnknownFields()  # of a newer protocol
    return pb.OperationRecord(operation=operation.SerializeToString(deterministic=True))


def pause_of(state: pb.ServingState) -> pb.PauseState:
    """Return the part of a state that pauses and sleep change."""
    return pb.PauseState(
        paused=state.paused, sleeping=state.sleeping, sleep_level=state.sleep_level, awake_parts=state.awake_parts
    )
