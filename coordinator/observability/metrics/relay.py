"""Relays vLLM's gauges and counters from workers, each labelled with its worker."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from tokenwire.coordinator.fleet.control_client import call_worker
from tokenwire.coordinator.fleet.session import WorkerSession
from tokenwire.coordinator.observability.metrics.worker_text import RelayedFamilies
from tokenwire.errors import TokenwireError
from tokenwire.process.for_each import for_each
from tokenwire.v1 import control_pb2 as pb

log = logging.getLogger(__name__)

_FRESH_S = 1.0
_TIMEOUT_S = 1.0


class Relay(Collector):
    """Fetches the metrics of all connected workers concurrently, at most once a second."""

    def __init__(self, sessions: Callable[[], Sequence[WorkerSession]]) -> None:
        self._sessions = sessions
        self._fetching = asyncio.Lock()
        self._fetched_at = float("-inf")
        self._text = b""
        self._rejected: dict[str, int] = {}
        """Lines of each worker's metrics that were rejected since it is listed."""
        self._rejecting: set[str] = set()
        """Workers whose last metrics had such lines."""

    def collect(self) -> Iterator[Metric]:
        """Return how much was rejected."""
        family = CounterMetricFamily(
            "tokenwire_relay_rejected_lines",
            "Lines of a worker's own metrics that were not relayed: invalid, or beyond the limits.",
            labels=("worker",),
        )
        for session in self._sessions():
            family.add_metric((session.address,), self._rejected.get(session.address, 0))
        yield family

    async def text(self) -> bytes:
        """Return the families of all workers in Prometheus' text format, without those that do not respond in time."""
        async with self._fetching:
            if time.monotonic() - self._fetched_at > _FRESH_S:
                connected = [session for session in self._sessions() if session.control is not None]
                responses = await asyncio.gather(*map(_fetch, connected))
                pairs = zip(connected, responses, strict=True)
                texts = {session.address: text for session, text in pairs if text is not None}
                # In a thread, because workers decide how long their texts are.
                self._text, rejected = await asyncio.to_thread(merged_texts, texts)
                self._record(rejected)
                self._fetched_at = time.monotonic()
            return self._text

    def _record(self, rejected: Mapping[str, int]) -> None:
        for address in rejected.keys() - self._rejecting:
            log.warning("worker %s: %d lines of its metrics are not relayed", address, rejected[address])
        self._rejecting = set(rejected)
        listed = [session.address for session in self._sessions()]
        self._rejected = {each: self._rejected.get(each, 0) + rejected.get(each, 0) for each in listed}


async def _fetch(session: WorkerSession) -> str | None:
    try:
        response = await call_worker(session, lambda stub: stub.GetMetrics(pb.GetMetricsRequest(), timeout=_TIMEOUT_S))
    except TokenwireError as error:
        log.debug("no metrics from worker %s: %s", session.address, error)
        return None
    return str(response.text)


def merged_texts(texts: Mapping[str, str]) -> tuple[bytes, dict[str, int]]:
    """Merge the metrics of several workers, given by address; return them, and how many lines of whom were rejected."""
    families = RelayedFamilies()
    rejected: dict[str, int] = {}

    def add(address: str) -> None:
        rejected[address] = families.add(address, texts[address])

    for_each(texts, add)
    lines, left_out = families.merged()
    counts = {address: count + left_out[address] for address, count in rejected.items()}
    text = "".join(f"{line}\n" for line in lines).encode()
    return text, {address: count for address, count in counts.items() if count}
