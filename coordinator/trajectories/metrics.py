"""Collects what of recorded sessions was dropped."""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from tokenwire.coordinator.trajectories.store import TrajectoryStore


class TrajectoryCollector(Collector):
    """Collector of a process's store of sessions."""

    def __init__(self, store: TrajectoryStore) -> None:
        self._store = store

    def collect(self) -> Iterator[Metric]:
        """Yield the families."""
        dropped = self._store.dropped
        yield CounterMetricFamily(
            "tokenwire_trajectory_events_dropped",
            "Turns, rewards and messages of sessions that were not stored: the store failed, was too slow, or "
            "the session had --trajectories-session-mb.",
            dropped.events,
        )
        yield CounterMetricFamily(
            "tokenwire_trajectory_sessions_dropped",
            "Recorded sessions that were dropped before their time, because --trajectories-mb was full.",
            dropped.sessions,
        )
