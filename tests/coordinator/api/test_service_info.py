"""The routes of the service itself."""

from dataclasses import replace
from pathlib import Path

from tests.coordinator.api.applications import all_routes, client_of, served
from tests.workers import until
from tokenwire import __version__
from tokenwire.coordinator.app import build_app
from tokenwire.coordinator.fleet.pool import WorkerPool


async def test_a_service_with_workers_is_healthy(tmp_path: Path) -> None:
    """With and without the slash of older clients."""
    async with served(tmp_path) as client:
        assert [(await client.get(path)).status_code for path in ("/health", "/health/")] == [200, 200]


async def test_a_service_without_workers_reports_why(tmp_path: Path) -> None:
    """Each of them; load balancers retry."""
    settings = replace(all_routes("127.0.0.1:1"), workers=(f"unix:{tmp_path}/a.sock", f"unix:{tmp_path}/b.sock"))
    app = build_app(settings)
    pool: WorkerPool = app.state.pool
    async with client_of(app) as client:
        await until(lambda: len(pool.sessions) == 2)
        answer = await client.get("/health")

    assert answer.status_code == 503
    assert "retry-after" in answer.headers
    message = answer.json()["error"]["message"]
    assert "a.sock: " in message
    assert "b.sock: " in message


async def test_models_are_listed_with_their_adapters(tmp_path: Path) -> None:
    """An adapter has its base model as its parent, and its context."""
    async with served(tmp_path) as client:
        await client.post("/v1/load_lora_adapter", json={"lora_name": "red", "lora_path": "/red"})
        base, adapter = (await client.get("/v1/models")).json()["data"]

    assert (base["id"], base["parent"], base["owned_by"]) == ("simulated", None, "tokenwire")
    assert (adapter["id"], adapter["root"], adapter["parent"]) == ("red", "/red", "simulated")
    assert base["max_model_len"] == adapter["max_model_len"] > 0


async def test_version_and_metrics_are_served(tmp_path: Path) -> None:
    """Metrics in Prometheus' format."""
    async with served(tmp_path) as client:
        assert (await client.get("/version")).json() == {"version": __version__}
        metrics = await client.get("/metrics")

    assert metrics.headers["content-type"].startswith("text/plain; version=")
    assert "# TYPE tokenwire_" in metrics.text
