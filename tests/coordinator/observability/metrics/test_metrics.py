"""All metrics of one process in one text."""

import asyncio

from prometheus_client.parser import text_string_to_metric_families

import tokenwire
from tests.workers import accept
from tokenwire.coordinator.fleet.admission.queue import AdmissionQueue
from tokenwire.coordinator.fleet.admission.settings import AdmissionSettings
from tokenwire.coordinator.fleet.failover.settings import FailoverStats
from tokenwire.coordinator.fleet.pool import WorkerPool
from tokenwire.coordinator.observability.metrics.fleet import FleetCollector
from tokenwire.coordinator.observability.metrics.metrics import Metrics
from tokenwire.coordinator.observability.record import RequestRecord


def collector() -> FleetCollector:
    """Return the collector of an empty fleet."""
    pool = WorkerPool("test", accept)
    return FleetCollector(pool, AdmissionQueue(pool, AdmissionSettings()), FailoverStats())


async def values(metrics: Metrics) -> dict[str, float]:
    """Return the value of each sample, by its name."""
    families = text_string_to_metric_families((await metrics.text()).decode())
    return {sample.name: sample.value for family in families for sample in family.samples}


async def test_requests_fleet_and_process_are_one_text() -> None:
    """With the version, and what is being served now."""
    metrics = Metrics(collector(), in_flight=lambda: 3)
    metrics.requests.on_end(RequestRecord(route="/health", status=200))
    shown = await values(metrics)

    assert (shown["tokenwire_requests_total"], shown["tokenwire_requests_in_flight"]) == (1, 3)
    assert "process_cpu_seconds_total" in shown
    assert "tokenwire_failover_sequences_total" in shown
    assert f'tokenwire_build_info{{version="{tokenwire.__version__}"}} 1.0' in (await metrics.text()).decode()


async def test_the_event_loops_lag_is_measured_until_the_stop() -> None:
    """A timer measures it, again and again."""
    metrics = Metrics(collector())
    metrics.start()
    async with asyncio.timeout(10):
        while (await values(metrics))["tokenwire_event_loop_lag_seconds_count"] < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    metrics.stop()


async def test_tenants_are_counted_only_where_keys_are_required() -> None:
    """Without keys there are none."""
    assert Metrics(collector()).tenants is None
    assert Metrics(collector(), tenants=lambda: ["one"]).tenants is not None
