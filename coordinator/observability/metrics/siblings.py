"""Exchange of metrics among processes that share a port, so that a scrape of any returns the sum."""

import asyncio
import contextlib
import json
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from prometheus_client.core import Metric

_TIMEOUT_S = 1.0


class SiblingSockets:
    """A Unix socket for each process, in a directory that only their user can enter."""

    def __init__(self, directory: Path, collect: Callable[[], Iterable[Metric]]) -> None:
        self._directory = directory
        self._collect = collect
        self._own = directory / f"{os.getpid()}.sock"
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Serve this process's metrics to its siblings."""
        self._server = await asyncio.start_unix_server(self._respond, self._own)

    async def stop(self) -> None:
        """Stop serving."""
        if self._server is not None:
            self._server.close()
            self._own.unlink(missing_ok=True)

    async def families(self) -> Sequence[Sequence[Metric]]:
        """Return the metrics of each sibling; one that does not respond is left out."""
        others = [path for path in self._directory.glob("*.sock") if path != self._own]
        responses = await asyncio.gather(*map(_fetch, others))
        return [response for response in responses if response is not None]

    async def _respond(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(dumped(self._collect()))
        with contextlib.suppress(OSError):
            await writer.drain()
        writer.close()


async def _fetch(path: Path) -> Sequence[Metric] | None:
    with contextlib.suppress(OSError, TimeoutError, ValueError):
        async with asyncio.timeout(_TIMEOUT_S):
            reader, writer = await asyncio.open_unix_connection(path)
            try:
                return loaded(await reader.read())
            finally:
                writer.close()
    return None


def dumped(families: Iterable[Metric]) -> bytes:
    """Serialize families as JSON."""
    return json.dumps(
        [
            (family.name, family.documentation, family.type, [sample[:3] for sample in family.samples])
            for family in families
        ]
    ).encode()


def loaded(data: bytes) -> list[Metric]:
    """Parse the output of `dumped`. Raises ValueError."""
    families = []
    for name, text, kind, samples in json.loads(data):
        family = Metric(name, text, kind)
        for sample, labels, value in samples:
            family.add_sample(sample, labels, value)
        families.append(family)
    return families
