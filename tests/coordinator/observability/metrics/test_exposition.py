"""The exposition exchanges metric families as JSON."""

from prometheus_client import CollectorRegistry, Counter

from tokenwire.coordinator.observability.metrics.exposition import dumped, loaded


def test_families_survive_the_exchange() -> None:
    """Names, labels and values are those of the process that dumped them."""
    registry = CollectorRegistry()
    Counter("tokens", "Some.", ("model",), registry=registry).labels("m").inc(3)

    (family,) = loaded(dumped(registry.collect()))

    assert (family.name, family.type, family.documentation) == ("tokens", "counter", "Some.")
    assert family.samples[0][:3] == ("tokens_total", {"model": "m"}, 3.0)
