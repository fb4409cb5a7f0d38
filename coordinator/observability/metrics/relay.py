"""Relays vLLM's gauges and counters from workers, each labelled with its worker."""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence

from tokenwire.coordinator.fleet.control_client import call_worker
from tokenwire.coordinator.fleet.session import WorkerSession
from tokenwire.errors import TokenwireError
from tokenwire.process.for_each import for_each
from tokenwire.v1 import control_pb2 as pb

log = logging.getLogger(__name__)

_PREFIX = "vllm:"
_RELAYED = frozenset({"gauge", "counter"})
"""Histograms have many series: Prometheus scrapes workers for them."""
_FRESH_S = 1.0
_TIMEOUT_S = 1.0


class Relay:
    """Fetches the metrics of all connected workers concurrently, at most once a second."""

    def __init__(self, sessions: Callable[[], Sequence[WorkerSession]]) -> None:
        self._sessions = sessions
        self._fetching = asyncio.Lock()
        self._fetched_at = float("-inf")
        self._text = b""

    async def text(self) -> bytes:
        """Return the families of all workers in Prometheus' text format, without those that do not respond in time."""
        async with self._fetching:
            if time.monotonic() - self._fetched_at > _FRESH_S:
                connected = [session for session in self._sessions() if session.control is not None]
                responses = await asyncio.gather(*map(_fetch, connected))
                pairs = zip(connected, responses, strict=True)
                texts = {session.address: text for session, text in pairs if text is not None}
                self._text = relabelled(texts).encode()
                self._fetched_at = time.monotonic()
            return self._text


async def _fetch(session: WorkerSession) -> str | None:
    try:
        response = await call_worker(session, lambda stub: stub.GetMetrics(pb.GetMetricsRequest(), timeout=_TIMEOUT_S))
    except TokenwireError as error:
        log.debug("no metrics from worker %s: %s", session.address, error)
        return None
    return str(response.text)


def relabelled(texts: Mapping[str, str]) -> str:
    """Merge the families of several workers, given by address, and label each sample with its worker."""
    families: dict[str, list[str]] = {}
    for_each(texts, lambda address: _add(families, address, texts[address]))
    return "".join(f"{line}\n" for lines in families.values() for line in lines)


def _add(families: dict[str, list[str]], address: str, text: str) -> None:
    label = 'worker="' + address.replace("\\", r"\\").replace('"', r"\"") + '"'
    help_line, samples = "", None
    for line in text.splitlines():
        if line.startswith("# HELP "):
            help_line, samples = line, None
        elif line.startswith("# TYPE "):
            samples = _family(families, help_line, line)
        elif samples is not None and line:
            samples.append(_with_label(line, label))


def _family(families: dict[str, list[str]], help_line: str, type_line: str) -> list[str] | None:
    """Return the lines of a family, started if it is new; None for one that is not relayed."""
    _, _, name, kind = type_line.split(" ", 3)
    if not name.startswith(_PREFIX) or kind not in _RELAYED or name.endswith("_created"):
        return None
    return families.setdefault(name, [help_line, type_line])


def _with_label(sample: str, label: str) -> str:
    name, brace, rest = sample.partition("{")
    if brace:
        return f"{name}{{{label}{'' if rest.startswith('}') else ','}{rest}"
    name, _, value = sample.partition(" ")
    return f"{name}{{{label}}} {value}"
