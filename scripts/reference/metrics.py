"""docs/reference/metrics.md: the metric families of the registries, with their types, labels, units and help."""

import re
from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from scripts.reference.markdown import page as joined
from scripts.reference.markdown import table
from tokenwire.coordinator.app import Core, build_core
from tokenwire.coordinator.auth.api_keys import ApiKey, AuthSettings
from tokenwire.coordinator.settings import CoordinatorSettings
from tokenwire.coordinator.trajectories.settings import TrajectorySettings
from tokenwire.v1 import inference_pb2 as pb
from tokenwire.worker.engine.media import processing_metrics, received_metrics
from tokenwire.worker.media.processor_pool import ProcessorPool
from tokenwire.worker.media.received import ReceivedMedia
from tokenwire.worker.services.metrics import WorkerMetrics
from tokenwire.worker.simulated_engine.engine import SimulatedEngine
from tokenwire.worker.simulated_engine.metrics import families
from tokenwire.worker.simulated_engine.settings import SimulationSettings

_INTRODUCTION = """# Metrics

*For dashboards and alerts.* `make reference` generates this page from the registries.
[Monitor](../guides/monitoring.md) shows how to scrape them, [Alerts](../guides/alerts.md) what to do.

## Of a coordinator

`GET /metrics` returns Prometheus' text format, without an API key. With `--processes N` any process returns the
metrics of all: counts are summed, and for what all of them see (the workers) the maximum is taken. Times and tokens
count requests that were placed on a worker."""
_OUTCOMES = """Outcomes: `ok`; `invalid` (4xx); `rejected` (429); `unavailable` (503); `deadline` (the client's or the
server's timeout expired); `error` (other 5xx, also in the middle of a stream, whose code is 200);
`client_disconnected`; `client_slow` (disconnected because it did not read).

Cardinality is bounded: routes and outcomes are fixed, models are those that were served, workers the current ones,
tenants those that have [keys](../guides/tenants.md) now; without keys there is no family of tenants.
Beside these, a coordinator returns the `vllm:` gauges and counters of its workers,
[relayed](../guides/monitoring.md#metrics-of-workers)."""
_WORKER = """## Of a worker

`tokenwire worker --metrics-listen HOST:PORT` serves them. With vLLM the `vllm:` families are vLLM's own, all of them;
the simulated engine has these:"""
_MEDIA = """A worker whose model takes [pictures](../guides/images.md) has these, too; with the simulated engine only
the first three, unless `--sim-image-ms` lets pictures take time:"""
_UNITS = re.compile("_(seconds|bytes|ratio|tokens)(?=_|$)")


def page() -> str:
    """Return the page."""
    core = core_with_keys()
    worker = WorkerMetrics(SimulatedEngine(SimulationSettings()), lambda: 0).registry
    engine = families("simulated", pb.Load(), 0, 0)
    return joined(
        _INTRODUCTION,
        _table(families_of(core.observers.metrics.registry)),
        _OUTCOMES,
        _WORKER,
        _table([*engine, *families_of(worker)]),
        _MEDIA,
        _table(media_families()),
    )


def core_with_keys() -> Core:
    """Return a coordinator whose registry has all families, those of tenants, their limits and sessions too."""
    auth = AuthSettings(keys=(ApiKey(b"", "tenant"),), limits_store="redis://nowhere")
    recorded = TrajectorySettings(enabled=True)
    return build_core(CoordinatorSettings(("unix:/nowhere",), auth=auth, trajectories=recorded))


def media_families() -> list[Metric]:
    """Return the families of a worker whose model takes pictures."""
    return [*received_metrics(ReceivedMedia(0)), *processing_metrics(ProcessorPool("", b"", 1))]


def families_of(registry: CollectorRegistry) -> Iterator[Metric]:
    """Yield the families of a registry, in the order of their registration, with the names of their labels."""
    collectors: Iterable[Collector] = registry._collector_to_names
    for collector in collectors:
        for family in collector.collect():
            family._labelnames = getattr(family, "_labelnames", getattr(collector, "_labelnames", ()))  # type: ignore[attr-defined]
            yield family


def _table(metrics: Iterable[Metric]) -> str:
    return table(("metric", "type", "labels", "unit", "description"), map(row_of, metrics))


def row_of(family: Metric) -> tuple[str, ...]:
    """Return name, type, labels, unit and description of a family."""
    name = f"{family.name}_total" if family.type == "counter" else family.name
    labels = ", ".join(f"`{label}`" for label in getattr(family, "_labelnames", ()))
    units = _UNITS.findall(name)
    return f"`{name}`", family.type, labels, units[-1] if units else "", family.documentation
