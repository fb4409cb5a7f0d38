"""Collects what the fleet, the lines and the history know anyway, when somebody asks."""

from collections.abc import Callable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from tokenwire.coordinator.fleet.admission.queue import AdmissionQueue
from tokenwire.coordinator.fleet.failover.settings import FailoverStats
from tokenwire.coordinator.fleet.pool import WorkerPool
from tokenwire.coordinator.fleet.session import SessionState, WorkerSession
from tokenwire.coordinator.fleet.session_stats import buckets

_STATES = (*(state.value for state in SessionState), "out_of_sync")


class FleetCollector(Collector):
    """Workers as they are at this moment: one that has left leaves nothing behind."""

    def __init__(self, pool: WorkerPool, queue: AdmissionQueue, failover: FailoverStats) -> None:
        self._pool = pool
        self._queue = queue
        self._failover = failover

    def collect(self) -> Iterator[Metric]:
        """Return all families."""
        yield self._states()
        yield self._losses()
        yield self._of_workers(
            "requests_running", "Sequences that it runs.", lambda session: session.workload.load.running
        )
        yield self._of_workers(
            "requests_waiting", "Sequences in its queue.", lambda session: session.workload.load.waiting
        )
        yield self._of_workers(
            "kv_cache_usage_ratio", "Part of its KV cache in use.", lambda session: session.workload.load.kv_cache_usage
        )
        yield self._of_workers("open_slots", "Sequences of this coordinator.", lambda session: session.open_slots)
        yield from self._lines()
        yield from self._stats_by_model()
        failover = CounterMetricFamily(
            "tokenwire_failover_sequences", "Sequences that lost a worker.", labels=("result",)
        )
        for result in ("resumed", "replayed", "failed", "poisoned"):
            failover.add_metric((result,), getattr(self._failover, result))
        yield failover

    def _states(self) -> Metric:
        family = GaugeMetricFamily(
            "tokenwire_worker_state", "1 for the state that a worker is in.", labels=("worker", "model", "state")
        )
        for session in self._pool.sessions:
            current = self._state(session)
            for state in _STATES:
                family.add_metric((session.address, session.name, state), float(state == current))
        return family

    def _losses(self) -> Metric:
        family = CounterMetricFamily(
            "tokenwire_worker_losses", "How often it was lost, and by what.", labels=("worker", "model", "reason")
        )
        for session in self._pool.sessions:
            for reason, count in session.losses.items():
                family.add_metric((session.address, session.name, reason.value), count)
        return family

    def _state(self, session: WorkerSession) -> str:
        is_misfit = session.state is SessionState.READY and self._pool.out_of_sync(session)
        return "out_of_sync" if is_misfit else session.state.value

    def _of_workers(self, name: str, text: str, value: Callable[[WorkerSession], float]) -> Metric:
        family = GaugeMetricFamily(f"tokenwire_worker_{name}", text, labels=("worker", "model"))
        for session in self._pool.sessions:
            if session.state is not SessionState.CONNECTING:
                family.add_metric((session.address, session.name), value(session))
        return family

    def _lines(self) -> Iterator[Metric]:
        requests = GaugeMetricFamily("tokenwire_queue_requests", "Requests that wait in line.", labels=("model",))
        sequences = GaugeMetricFamily("tokenwire_queue_sequences", "Sequences that they want.", labels=("model",))
        known = {session.name: (0, 0) for session in self._pool.sessions if session.name}
        for model, (waiting, wanted) in {**known, **self._queue.lengths()}.items():
            requests.add_metric((model,), waiting)
            sequences.add_metric((model,), wanted)
        refused = CounterMetricFamily(
            "tokenwire_queue_refused", "Requests that were sent away.", labels=("model", "reason")
        )
        for (model, reason), count in self._queue.refusals.items():
            refused.add_metric((model, reason), count)
        yield from (requests, sequences, refused)

    def _stats_by_model(self) -> Iterator[Metric]:
        gaps = HistogramMetricFamily(
            "tokenwire_inter_token_latency_seconds", "Between a sequence's tokens.", labels=("model",)
        )
        overshoot = CounterMetricFamily(
            "tokenwire_overshoot_tokens", "Tokens for sequences that had been given up.", labels=("model",)
        )
        for model, stats in self._pool.stats_by_model.items():
            gaps.add_metric((model,), buckets(stats), stats.gaps_s)
            overshoot.add_metric((model,), stats.overshoot_tokens)
        yield from (gaps, overshoot)
