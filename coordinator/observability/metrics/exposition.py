"""The response of `/metrics`: this process merged with its siblings, and the metrics relayed from workers."""

import asyncio
import json
from collections.abc import Iterable, Sequence

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric

from tokenwire.coordinator.observability.metrics.relay import Relay
from tokenwire.coordinator.observability.siblings import Siblings

_TOPIC = "metrics"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SHARED = ("tokenwire_worker_", "tokenwire_build_info", "process_start_time_seconds")
"""Prefixes of families that every process exports alike: not summed."""
_OWN = frozenset({"tokenwire_worker_open_slots"})
Series = tuple[str, tuple[tuple[str, str], ...]]


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


def merged(processes: Sequence[Iterable[Metric]]) -> list[Metric]:
    """Sum the samples of all processes; of shared families, take the maximum."""
    families: dict[str, Metric] = {}
    values: dict[str, dict[Series, float]] = {}
    for process in processes:
        for family in process:
            families.setdefault(family.name, family)
            known = values.setdefault(family.name, {})
            combine = max if _is_shared(family.name) else float.__add__
            for sample in family.samples:
                if sample.name.endswith("_created"):
                    continue
                key = sample.name, tuple(sample.labels.items())
                value = float(sample.value)
                known[key] = combine(known[key], value) if key in known else value
    return [_family(families[name], samples) for name, samples in values.items()]


def _is_shared(name: str) -> bool:
    return name.startswith(_SHARED) and name not in _OWN


def _family(like: Metric, samples: dict[Series, float]) -> Metric:
    family = Metric(like.name, like.documentation, like.type)
    for (name, labels), value in samples.items():
        family.add_sample(name, dict(labels), value)
    return family
