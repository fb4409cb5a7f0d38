"""Collects metrics of workers, queues and failover from their current state at each scrape."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from tokenwire.coordinator.fleet.admission.queue import AdmissionQueue
from tokenwire.coordinator.fleet.failover.settings import FailoverStats
from tokenwire.coordinator.fleet.pool import WorkerPool
from tokenwire.coordinator.fleet.session import WorkerSession
from tokenwire.coordinator.fleet.session_listener import SessionState
from tokenwire.coordinator.fleet.session_stats import buckets

_STATES = (*(state.value for state in SessionState), "out_of_sync", "set_aside", "ejected", "withheld")


class FleetCollector(Collector):
    """Collector of the fleet. A worker that was removed has no series."""

    def __init__(
        self, pool: WorkerPool, queue: AdmissionQueue, failover: FailoverStats, expired: Mapping[str, int] | None = None
    ) -> None:
        """`expired` counts the sequences that ended because their weights were too old, by model."""
        self._expired = {} if expired is None else expired
        self._pool = pool
        self._queue = queue
        self._failover = failover

    def collect(self) -> Iterator[Metric]:
        """Return all families."""
        yield self._states()
        yield from self._revisions()
        yield self._losses()
        yield self._ejections()
        yield self._of_workers(
            "sequences_running",
            "Sequences running on a worker, as it reports.",
            lambda session: session.workload.load.running,
        )
        yield self._of_workers(
            "sequences_waiting", "Sequences in a worker's own queue.", lambda session: session.workload.load.waiting
        )
        yield self._of_workers(
            "kv_cache_usage_ratio",
            "Fraction of a worker's KV cache in use, 0 to 1.",
            lambda session: session.workload.load.kv_cache_usage,
        )
        yield self._of_workers(
            "open_slots", "Open slots of this coordinator on a worker.", lambda session: session.open_slots
        )
        yield from self._queues()
        yield from self._stats_by_model()
        yield CounterMetricFamily(
            "tokenwire_frames_merged",
            "Frames of workers that were dispatched together with the one before, because this coordinator was behind: "
            "its streams then get the tokens of several steps in one chunk.",
            value=self._pool.pace.merged,
        )
        yield from self._failovers()
        yield self._staleness()

    def _states(self) -> Metric:
        family = GaugeMetricFamily(
            "tokenwire_worker_state",
            "1 for the current state of a worker: connecting, ready, stalled (connected, but its engine makes no "
            "step), draining, out_of_sync (connected, but it differs from its model's desired state), set_aside "
            "(connected, but it announces what no coordinator of ours ordered), ejected (connected, but much slower "
            "than others, or they serve what it does not), or withheld (the last one of its revision, which serves "
            "nothing while another revision does).",
            labels=("worker", "model", "state"),
        )
        for session in self._pool.sessions:
            current = self._state(session)
            for state in _STATES:
                family.add_metric((session.address, session.model_name, state), float(state == current))
        return family

    def _revisions(self) -> Iterator[Metric]:
        workers = GaugeMetricFamily(
            "tokenwire_worker_revision",
            "1 for the revision that a worker serves; two of one model are a rollout.",
            labels=("worker", "model", "revision"),
        )
        for session in self._pool.sessions:
            if session.state is not SessionState.CONNECTING:
                workers.add_metric((session.address, session.model_name, session.revision.digest), 1)
        sequences = CounterMetricFamily(
            "tokenwire_revision_sequences",
            "Sequences sent to workers of a revision, as long as it has workers.",
            labels=("model", "revision"),
        )
        for key, count in self._pool.sequences_by_revision.items():
            sequences.add_metric(key, count)
        yield from (workers, sequences)

    def _losses(self) -> Metric:
        return self._counts(
            "losses",
            "Lost sessions with a worker: closed (its process or connection ended), heartbeat_timeout, protocol_error, "
            "or stalled (heartbeats, but no engine step).",
            lambda session: session.losses.items(),
        )

    def _ejections(self) -> Metric:
        return self._counts(
            "ejections",
            "How often a worker was ejected: slow (its tokens take much longer than those of others), silent (it has "
            "requests and sends no token while others do), starving (it serves some requests and others never), or "
            "failing (others serve what it fails).",
            lambda session: session.ejections.items(),
        )

    def _failovers(self) -> Iterator[Metric]:
        failover = CounterMetricFamily(
            "tokenwire_failover_sequences",
            "Sequences whose worker was lost: resumed, replayed, failed, or stopped as poison.",
            labels=("result",),
        )
        for result in ("resumed", "replayed", "failed", "poison"):
            failover.add_metric((result,), getattr(self._failover, result))
        yield failover
        yield CounterMetricFamily(
            "tokenwire_preempted_sequences",
            "Sequences taken back from a worker, because another tenant with less waited for --preempt-after.",
            value=self._failover.preempted,
        )

    def _staleness(self) -> Metric:
        family = CounterMetricFamily(
            "tokenwire_stale_sequences",
            "Sequences ended with finish reason abort, because their weights were older than max_weight_lag or "
            "min_weight_version allows.",
            labels=("model",),
        )
        for model, count in self._expired.items():
            family.add_metric((model,), count)
        return family

    def _counts(
        self, name: str, text: str, by_reason: Callable[[WorkerSession], Iterable[tuple[StrEnum, int]]]
    ) -> Metric:
        family = CounterMetricFamily(f"tokenwire_worker_{name}", text, labels=("worker", "model", "reason"))
        for session in self._pool.sessions:
            for reason, count in by_reason(session):
                family.add_metric((session.address, session.model_name, reason.value), count)
        return family

    def _state(self, session: WorkerSession) -> str:
        state: str = session.state.value
        if session.state is not SessionState.READY:
            return state
        if self._pool.out_of_sync(session):
            return "set_aside" if self._pool.set_aside(session) else "out_of_sync"
        if session.ejected:
            return "ejected"
        return "withheld" if session.withheld else state

    def _of_workers(self, name: str, text: str, value: Callable[[WorkerSession], float]) -> Metric:
        family = GaugeMetricFamily(f"tokenwire_worker_{name}", text, labels=("worker", "model"))
        for session in self._pool.sessions:
            if session.state is not SessionState.CONNECTING:
                family.add_metric((session.address, session.model_name), value(session))
        return family

    def _queues(self) -> Iterator[Metric]:
        requests = GaugeMetricFamily("tokenwire_queue_requests", "Queued requests.", labels=("model",))
        sequences = GaugeMetricFamily("tokenwire_queue_sequences", "Sequences of queued requests.", labels=("model",))
        empty = {session.model_name: (0, 0) for session in self._pool.sessions if session.model_name}
        for model, (request_count, sequence_count) in {**empty, **self._queue.lengths()}.items():
            requests.add_metric((model,), request_count)
            sequences.add_metric((model,), sequence_count)
        rejected = CounterMetricFamily(
            "tokenwire_queue_rejected",
            "Requests rejected by admission: full, no_worker or timeout.",
            labels=("model", "reason"),
        )
        for (model, reason), count in self._queue.rejections.items():
            rejected.add_metric((model, reason), count)
        yield from (requests, sequences, rejected)
        yield GaugeMetricFamily(
            "tokenwire_placed_memory_bytes",
            "What the requests that workers have take of --max-running-mb, until their replies are sent.",
            value=self._queue.placed_memory.held_bytes,
        )

    def _stats_by_model(self) -> Iterator[Metric]:
        gaps = HistogramMetricFamily(
            "tokenwire_inter_token_latency_seconds",
            "Time between tokens of a sequence, for each token but the first; not for plain vLLM servers.",
            labels=("model",),
        )
        overshoot = CounterMetricFamily(
            "tokenwire_overshoot_tokens",
            "Tokens received for sequences that had already ended: after a stop string, or without a client.",
            labels=("model",),
        )
        for model, stats in self._pool.stats_by_model.items():
            gaps.add_metric((model,), buckets(stats.gaps), stats.gaps_s)
            overshoot.add_metric((model,), stats.overshoot_tokens)
        yield from (gaps, overshoot)
