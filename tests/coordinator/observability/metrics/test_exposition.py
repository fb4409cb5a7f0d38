"""Processes exchange metric families as JSON, and merge them into one set."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import Metric

from tokenwire.coordinator.observability.metrics.exposition import dumped, loaded, merged


def test_families_survive_the_exchange() -> None:
    """Names, labels and values are those of the process that dumped them."""
    registry = CollectorRegistry()
    Counter("tokens", "Some.", ("model",), registry=registry).labels("m").inc(3)

    (family,) = loaded(dumped(registry.collect()))

    assert (family.name, family.type, family.documentation) == ("tokens", "counter", "Some.")
    assert family.samples[0][:3] == ("tokens_total", {"model": "m"}, 3.0)


def _process(fill: Callable[[CollectorRegistry], None]) -> list[Metric]:
    registry = CollectorRegistry()
    fill(registry)
    return list(registry.collect())


def _values_by_labels(families: list[Metric]) -> dict[tuple[str, str], float]:
    return {
        (sample.name, ",".join(sample.labels.values())): sample.value
        for family in families
        for sample in family.samples
    }


def test_counts_are_summed_for_each_set_of_labels() -> None:
    """Also if only one process has the labels."""

    def first(registry: CollectorRegistry) -> None:
        Counter("tokens", "t", ("model",), registry=registry).labels("a").inc(3)
        Histogram("wait", "w", registry=registry, buckets=(1.0, 2.0)).observe(1.5)

    def second(registry: CollectorRegistry) -> None:
        tokens = Counter("tokens", "t", ("model",), registry=registry)
        tokens.labels("a").inc(4)
        tokens.labels("b").inc(5)
        Histogram("wait", "w", registry=registry, buckets=(1.0, 2.0)).observe(0.5)

    values = _values_by_labels(merged([_process(first), _process(second)]))
    assert values[("tokens_total", "a")] == 7
    assert values[("tokens_total", "b")] == 5
    assert [values[("wait_bucket", bound)] for bound in ("1.0", "2.0", "+Inf")] == [1, 2, 2]
    assert values[("wait_sum", "")] == 2.0


def test_shared_families_are_not_summed() -> None:
    """A worker's load is the same in every process; open slots are each process's own."""

    def seen(load: float) -> list[Metric]:
        def fill(registry: CollectorRegistry) -> None:
            Gauge("tokenwire_worker_sequences_running", "r", registry=registry).set(load)
            Gauge("tokenwire_worker_open_slots", "o", registry=registry).set(load)

        return _process(fill)

    values = _values_by_labels(merged([seen(7), seen(8)]))
    assert values[("tokenwire_worker_sequences_running", "")] == 8
    assert values[("tokenwire_worker_open_slots", "")] == 15
