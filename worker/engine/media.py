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
    died: int


def media_metrics(received: ReceivedMedia, pool: MediaProcessing | None) -> list[Metric]:
    """Return the metrics of items that were put, and of processing them, if that takes time."""
    prefix = "tokenwire_worker_media"
    families = [
        CounterMetricFamily(f"{prefix}_puts", "Media that coordinators put.", received.puts),
        CounterMetricFamily(f"{prefix}_received_bytes", "Their bytes.", received.received_bytes),
        GaugeMetricFamily(f"{prefix}_memory_bytes", "Memory of their bytes.", received.used_bytes),
    ]
    if pool is not None:
        families += [
            CounterMetricFamily(f"{prefix}_processed", "Media that were processed.", pool.jobs),
            CounterMetricFamily(f"{prefix}_died", "Processes that died of one.", pool.died),
            GaugeMetricFamily(f"{prefix}_waiting", "Media that wait for a process, or are processed.", pool.waiting),
        ]
    return families
