"""The response of `/metrics`: this process merged with its siblings, and the metrics relayed from workers."""

import asyncio
import json
from collections.abc import Iterable, Sequence

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric

from tokenwire.coordinator.observability.metrics.merge import merged
from tokenwire.coordinator.observability.metrics.relay import Relay
from tokenwire.coordinator.observability.siblings import Siblings

_TOPIC = "metrics"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Exposition:
    """Composes the response."""

    def __init__(self, registry: CollectorRegistry, siblings: Siblings, workers: Relay | None) -> None:
        siblings.provide(_TOPIC, lambda _: dumped(registry.collect()))
        self._registry = registry
        self._siblings = siblings
        self._workers = workers

    async def text(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        others, relayed = await asyncio.gather(self._others(), self._relayed())
        return generate_latest(_Families(merged([list(self._registry.collect()), *others]))) + relayed

    async def _others(self) -> Sequence[Sequence[Metric]]:
        return [loaded(families) for families in await self._siblings.fetch(_TOPIC)]

    async def _relayed(self) -> bytes:
        return b"" if self._workers is None else await self._workers.text()


class _Families:
    """Families with the interface of a registry."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def dumped(families: Iterable[Metric]) -> bytes:
    """Serialize metric families as JSON, in which sibling processes exchange them."""
    return json.dumps(
        [
            (family.name, family.documentation, family.type, [sample[:3] for sample in family.samples])
            for family in families
        ]
    ).encode()


def loaded(data: bytes) -> list[Metric]:
    """Parse the output of `dumped`."""
    families = []
    for name, text, kind, samples in json.loads(data):
        family = Metric(name, text, kind)
        for sample, labels, value in samples:
            family.add_sample(sample, labels, value)
        families.append(family)
    return families
