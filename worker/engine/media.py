"""What an engine does with media of prompts."""

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from tokenwire.v1 import inference_pb2 as pb
from tokenwire.worker.media.received import ReceivedMedia


class EngineMedia(Protocol):
    """The media of an engine whose model takes some."""

    def kinds(self) -> Sequence[pb.MediaKind]:
        """Return which media a prompt may have."""

    async def put(self, chunks: AsyncIterator[pb.PutRequest]) -> None:
        """Store an item. Raises InvalidRequest or Overloaded."""

    async def expand(self, request: pb.ExpandRequest) -> pb.ExpandResponse:
        """Return a prompt as the engine sees it. Raises InvalidRequest, MediaMissing, Overloaded or EngineFailed."""

    def metrics(self) -> Sequence[Metric]:
        """Return Prometheus metrics."""


class MediaProcessing(Protocol):
    """What is counted of processing media; see ProcessorPool."""

    waiting: int
    jobs: int
    busy_s: float
    died: int


_PREFIX = "tokenwire_worker_media"


def received_metrics(received: ReceivedMedia) -> list[Metric]:
    """Return the metrics of items that coordinators put."""
    return [
        CounterMetricFamily(f"{_PREFIX}_puts", "Media that coordinators put.", received.puts),
        CounterMetricFamily(f"{_PREFIX}_received_bytes", "Their bytes.", received.received_bytes),
        GaugeMetricFamily(f"{_PREFIX}_memory_bytes", "Memory of their bytes.", received.used_bytes),
    ]


def processing_metrics(
    pool: MediaProcessing, expanded: int = 0, reused: int = 0, memory_bytes: int = 0
) -> list[Metric]:
    """Return the metrics of what processes items, and of what is kept of these."""
    return [
        CounterMetricFamily(f"{_PREFIX}_expanded", "Media of prompts that were expanded.", expanded),
        CounterMetricFamily(f"{_PREFIX}_reused", "Those of them that had been processed before.", reused),
        CounterMetricFamily(f"{_PREFIX}_processed", "Media that were processed.", pool.jobs),
        CounterMetricFamily(f"{_PREFIX}_processing_seconds", "Time that this took, of all processes.", pool.busy_s),
        GaugeMetricFamily(f"{_PREFIX}_processed_memory_bytes", "Memory of what is kept of them.", memory_bytes),
        CounterMetricFamily(f"{_PREFIX}_died", "Processes that died of one.", pool.died),
        GaugeMetricFamily(f"{_PREFIX}_waiting", "Media that wait for a process, or are processed.", pool.waiting),
    ]
