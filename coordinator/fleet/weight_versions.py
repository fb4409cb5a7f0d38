"""The versions of a model's weights, in the order of the operations that set their labels."""

import contextlib
from collections.abc import Sequence
from typing import NamedTuple

from google.protobuf.message import DecodeError

from tokenwire.protocol.weight_limits import WeightLimits
from tokenwire.v1 import inference_pb2 as pb

MOST_REMEMBERED = 256
"""Versions: weights that are older than all of them lag behind by that many."""
_MOST_PASSED_ON, _MOST_PASSED_ON_BYTES = 64, 16 * 1024
"""What a record has of the versions before: workers repeat it with their states."""


class Labelled(NamedTuple):
    """A label, and the epoch of the operation that set it: 0 for what workers started with."""

    epoch: int
    label: str


INITIAL = Labelled(0, "")


class WeightVersions:
    """The versions that the operations on a model have made, as far as they are known here."""

    def __init__(self) -> None:
        self._versions: list[Labelled] = []
        """Oldest first."""

    @property
    def newest(self) -> Labelled:
        """The version that all workers are to have."""
        return self._versions[-1] if self._versions else INITIAL

    def observe_initial(self, label: str) -> None:
        """Add the label that a worker started with, the first one of those that differ."""
        if not self._versions or self._versions[0].epoch:
            self._insert(Labelled(0, label))

    def observe(self, desired: pb.ServingState) -> None:
        """Add what leads to a desired state."""
        operation = _labelling(desired.records)
        if operation is None:
            return
        for earlier in operation.earlier_versions:
            self._insert(Labelled(earlier.epoch, earlier.label))
        if not self._repeats(operation, desired.weights_epoch):
            self._insert(Labelled(operation.epoch, operation.weight_version))
        del self._versions[:-MOST_REMEMBERED]

    def lag(self, epoch: int) -> int:
        """Return how many versions are newer than that of an operation."""
        return sum(version.epoch > epoch for version in self._versions)

    def epoch_of(self, label: str) -> int | None:
        """Return the last operation that set a label; None if none is known."""
        return next((each.epoch for each in reversed(self._versions) if each.label == label), None)

    def admits(self, limits: WeightLimits, epoch: int) -> bool:
        """Return whether tokens of the version that an operation has set may begin a reply with these limits."""
        if limits.max_lag is not None and self.lag(epoch) > limits.max_lag:
            return False
        least = 0 if limits.min_version is None else self.epoch_of(limits.min_version)
        return least is not None and epoch >= least

    def passed_on(self) -> list[pb.WeightVersion]:
        """Return what the record of an operation that sets a label says of those before it."""
        found: list[pb.WeightVersion] = []
        size = 0
        for version in reversed(self._versions[-_MOST_PASSED_ON:]):
            message = pb.WeightVersion(epoch=version.epoch, label=version.label)
            size += message.ByteSize()
            if size > _MOST_PASSED_ON_BYTES:
                break
            found.append(message)
        return found[::-1]

    def _repeats(self, operation: pb.Operation, weights_epoch: int) -> bool:
        """Return whether an operation sets the label that these weights have already."""
        before = [each for each in self._versions if each.epoch < operation.epoch]
        known = before[-1] if before else INITIAL
        # The record of a whole state, of a worker without records, names the label that it started with.
        names_initial = operation.HasField("adapters") and not known.label
        is_initial = not known.epoch and not operation.weight_version
        same = known.label == operation.weight_version or names_initial or is_initial
        return weights_epoch <= known.epoch and same

    def _insert(self, version: Labelled) -> None:
        if version not in self._versions:
            self._versions.append(version)
            self._versions.sort()


def version_epoch_of(state: pb.ServingState) -> int:
    """Return the epoch of the operation that set the label of a worker's weights; 0: it started with it."""
    operation = _labelling(state.records)
    return 0 if operation is None else operation.epoch


def _labelling(records: Sequence[pb.OperationRecord]) -> pb.Operation | None:
    """Return the newest of some operations that sets a label."""
    with contextlib.suppress(DecodeError):  # workers may send anything; which of it is believed, is decided elsewhere
        operations = (pb.Operation.FromString(record.operation) for record in reversed(records))
        return next((each for each in operations if each.HasField("weight_version")), None)
    return None
