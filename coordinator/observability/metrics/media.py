"""Collects what pictures of requests cost: how they were loaded, and what they take."""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tokenwire.coordinator.media.loader import MediaLoader


class MediaCollector(Collector):
    """Collector of a process's pictures."""

    def __init__(self, loader: MediaLoader) -> None:
        self._loader = loader

    def collect(self) -> Iterator[Metric]:
        """Yield the families."""
        loads = CounterMetricFamily(
            "tokenwire_media_loads",
            "Pictures of requests, by what they came from "
            "(data, fetch, uuid, embeds) and outcome (ok, refused, failed).",
            labels=("source", "outcome"),
        )
        for labels, count in self._loader.outcomes.items():
            loads.add_metric(labels, count)
        yield loads
        fetched = self._loader.fetched_bytes
        yield CounterMetricFamily("tokenwire_media_fetched_bytes", "Bytes of pictures that were fetched.", fetched)
        used = self._loader.store.used_bytes
        yield GaugeMetricFamily("tokenwire_media_memory_bytes", "Memory of pictures that are kept.", used)
