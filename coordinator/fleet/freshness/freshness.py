"""The layer of the fleet that keeps to requests' limits on the age of weights; others pass through it untouched."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from tokenwire.coordinator.fleet.desired_state import DesiredStates
from tokenwire.coordinator.fleet.freshness.limited_sequence import LimitedSequence
from tokenwire.coordinator.fleet.pool_listener import PoolListener
from tokenwire.coordinator.fleet.request_handle import NEW, ChoiceHandle, Fleet, OnPlaced, Placement, RequestHandle
from tokenwire.coordinator.fleet.slots import SlotListener
from tokenwire.coordinator.fleet.submission import Submission
from tokenwire.errors import InvalidRequest, Overloaded, reply_error
from tokenwire.process.for_each import for_each

if TYPE_CHECKING:
    from tokenwire.coordinator.fleet.session import WorkerSession

_MOST_AWAITED = 64
"""Labels that nobody has set yet, and requests wait for, of one model: each has a queue of its own."""


class ResumingLayer(Fleet, Protocol):
    """The layer below; see Failover."""

    def submit(
        self, model: str, submission: Submission, listeners: Sequence[SlotListener], placement: Placement = NEW
    ) -> ChoiceHandle:
        """Send a request to a worker of a model."""


class Freshness(PoolListener):
    """Ends sequences that fall behind, and lets none start on weights that are too old."""

    def __init__(self, below: ResumingLayer, desired: DesiredStates) -> None:
        self._below = below
        self._desired = desired
        self._live: dict[str, dict[LimitedSequence, ChoiceHandle]] = {}
        """Sequences with limits, each with the handle of its request, by model."""
        self._awaited: Counter[tuple[str, str]] = Counter()
        """How many sequences were submitted for each model and label that were not known then."""
        self._first_named: dict[tuple[str, str], str] = {}
        """The tenants that named those first."""
        self.expired: Counter[str] = Counter()
        """Sequences that ended because their weights were too old, by model."""

    def check_open(self, model: str, adapter_id: int, placement: Placement = NEW, sequences: int = 1) -> None:
        """Check that weights are known here as far as a request's limits need it, and that it would be admitted."""
        if placement.weights is not None and not self._desired.follows_weights:
            name = "max_weight_lag" if placement.weights.max_lag is not None else "min_weight_version"
            raise InvalidRequest(
                f"`{name}` needs a coordinator that follows updates of weights: start it with --enable-rl, or with "
                "--operations-key-file.",
                param=name,
            )
        self._below.check_open(model, adapter_id, placement, sequences)

    def submit(
        self, model: str, submission: Submission, listeners: Sequence[SlotListener], placement: Placement = NEW
    ) -> RequestHandle:
        """Send a request to a worker whose weights are new enough, and end what falls behind."""
        limits = placement.weights
        if limits is None:
            return self._below.submit(model, submission, listeners, placement)
        versions, label = self._desired.versions(model), limits.min_version
        awaited = None if label is None or versions.epoch_of(label) is not None else (model, label)
        if awaited is not None:
            self._check_awaited(awaited, placement.tenant)
        elif not self._desired.allows_stale_weights:  # no candidate lags behind
            placement = replace(placement, weights=None)

        def on_end(sequence: LimitedSequence, too_old: bool) -> None:
            self._on_end(model, sequence, too_old, awaited)

        sequences = [LimitedSequence(listener, limits, versions, on_end) for listener in listeners]
        placement = replace(placement, on_placed=_recording(sequences, placement.on_placed))
        handle = self._below.submit(model, submission, sequences, placement)
        live = [each for each in sequences if not each.ended]
        self._live.setdefault(model, {}).update(dict.fromkeys(live, handle))
        if awaited is not None and live:
            self._awaited[awaited] += len(live)
            self._first_named.setdefault(awaited, placement.tenant)
        return _LimitedHandle(handle, live)

    def on_workers_changed(self, model: str) -> None:
        """End the sequences that new weights have left behind."""
        behind = {each: handle for each, handle in self._live.get(model, {}).items() if each.is_too_old()}
        for_each(behind, LimitedSequence.expire, lambda each, error: each.fail(reply_error(error)))
        for_each(behind, lambda each: behind[each].abort_one(each))  # so that it is not resumed elsewhere

    def _check_awaited(self, awaited: tuple[str, str], tenant: str) -> None:
        """Raise Overloaded if requests wait for too many labels: a tenant names half of those that others leave."""
        if awaited in self._awaited:
            return
        named = [by for (model, _), by in self._first_named.items() if model == awaited[0]]
        own = named.count(tenant)
        left = _MOST_AWAITED - len(named) + own
        if own >= (left // 2 if tenant else left):
            raise Overloaded(
                f"Your requests wait for {own} weight versions that do not exist yet, those of others for "
                f"{len(named) - own}, and `min_weight_version` names another one.",
                param="min_weight_version",
                retry_after_s=1,
            )

    def _on_end(self, model: str, sequence: LimitedSequence, too_old: bool, awaited: tuple[str, str] | None) -> None:
        self.expired[model] += too_old
        if self._live.get(model, {}).pop(sequence, None) is None:
            return  # it ended while it was submitted
        if awaited is not None:
            self._awaited[awaited] -= 1
            if not self._awaited[awaited]:
                del self._awaited[awaited], self._first_named[awaited]


@dataclass(frozen=True, slots=True)
class _LimitedHandle:
    """The handle of a request with limits."""

    below: RequestHandle
    sequences: Sequence[LimitedSequence]

    def abort(self) -> None:
        """Abort what still runs. Safe at any time, more than once."""
        self.below.abort()
        for_each(self.sequences, LimitedSequence.abort)

    def explain(self) -> str:
        """Return which worker has the request and why."""
        return self.below.explain()


def _recording(sequences: Sequence[LimitedSequence], on_placed: OnPlaced) -> OnPlaced:
    """Return a callback that tells sequences their worker, then calls another one."""

    def record(session: "WorkerSession", submission: Submission, count: int) -> None:
        for sequence in sequences[submission.start : submission.start + count]:
            sequence.session = session
        on_placed(session, submission, count)

    return record
