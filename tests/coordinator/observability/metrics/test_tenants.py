"""Metrics by tenant."""

import asyncio
from pathlib import Path

import httpx
import pytest
from prometheus_client import CollectorRegistry

from tests.coordinator.auth.test_accounts import FakeLimitStore
from tokenwire.coordinator.app import build_app
from tokenwire.coordinator.auth.api_keys import AuthSettings
from tokenwire.coordinator.observability.metrics.tenants import LimitStoreCollector, TenantMetrics
from tokenwire.coordinator.observability.record import RequestRecord
from tokenwire.coordinator.settings import CoordinatorSettings


def _tenant_record(tenant: str, status: int = 200, placed_at: float | None = 1.0) -> RequestRecord:
    return RequestRecord(status=status, tenant=tenant, prompt_tokens=100, completion_tokens=20, placed_at=placed_at)


def test_requests_and_tokens_are_counted_by_tenant() -> None:
    """Rejections are an outcome, and only placed requests have tokens."""
    registry = CollectorRegistry()
    registry.register(metrics := TenantMetrics(lambda: {"search", "batch"}))
    for record in (
        _tenant_record("search"),
        _tenant_record("search"),
        _tenant_record("batch"),
        _tenant_record("search", 429, None),
    ):
        metrics.on_end(record)

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(f"tokenwire_tenant_{name}_total", labels)

    assert value("requests", tenant="search", outcome="ok") == 2
    assert value("requests", tenant="search", outcome="rejected") == 1
    assert value("prompt_tokens", tenant="search") == 200
    assert value("completion_tokens", tenant="search") == 40
    assert value("completion_tokens", tenant="batch") == 20


def test_requests_without_a_valid_key_have_no_series() -> None:
    """Nor do tenants without a key, so that the keys bound the number of series."""
    registry = CollectorRegistry()
    registry.register(metrics := TenantMetrics(lambda: {"search"}))
    for tenant in ("", "invented"):
        metrics.on_end(_tenant_record(tenant))

    assert [sample for family in registry.collect() for sample in family.samples] == []


def test_series_of_a_removed_tenant_disappear_and_start_again_at_zero() -> None:
    """Its counts are not kept for its return."""
    registry = CollectorRegistry()
    tenants = {"search", "batch"}
    registry.register(metrics := TenantMetrics(lambda: tenants))
    metrics.on_end(_tenant_record("search"))
    metrics.on_end(_tenant_record("batch"))

    tenants.remove("batch")
    assert {sample.labels["tenant"] for family in registry.collect() for sample in family.samples} == {"search"}
    tenants.add("batch")
    assert registry.get_sample_value("tokenwire_tenant_completion_tokens_total", {"tenant": "batch"}) is None


@pytest.mark.parametrize("has_keys", [True, False])
def test_metrics_list_the_tenants_of_the_keys_file(has_keys: bool, tmp_path: Path) -> None:
    """A tenant appears with its first request and goes when its key is removed; without keys there is no family."""
    (file := tmp_path / "keys").write_text("search sk-search\nbatch sk-batch\n")
    settings = CoordinatorSettings(("unix:/nowhere",), auth=AuthSettings(file if has_keys else None))
    transport = httpx.ASGITransport(build_app(settings))

    async def metrics_after_a_removal() -> tuple[str, str]:
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            for key in ("sk-search", "sk-batch", "sk-guessed"):
                await client.get("/v1/models", headers={"authorization": f"Bearer {key}"})
            before = (await client.get("/metrics")).text
            file.write_text("search sk-search\n")
            return before, (await client.get("/metrics")).text

    before, after = asyncio.run(metrics_after_a_removal())

    for tenant, (is_listed, is_kept) in {"search": (True, True), "batch": (True, False)}.items():
        line = f'tokenwire_tenant_requests_total{{outcome="ok",tenant="{tenant}"}} 1.0'
        assert (line in before) is (is_listed and has_keys)
        assert (line in after) is (is_kept and has_keys)
    assert ("tokenwire_tenant" in before) is has_keys


def test_failures_of_the_store_of_limits_are_counted() -> None:
    """From the start, so that a first one is a change."""
    store, other, registry = FakeLimitStore(), FakeLimitStore(), CollectorRegistry()
    registry.register(LimitStoreCollector([store, other]))
    assert registry.get_sample_value("tokenwire_limits_store_failures_total") == 0

    store.failures, other.failures = 2, 1
    assert registry.get_sample_value("tokenwire_limits_store_failures_total") == 3
