"""rLLM's routes of workers; its own client uses them in tests/conformance/clients."""

from pathlib import Path

from tests.coordinator.api.applications import all_routes, client_of, served
from tests.workers import until
from tokenwire.coordinator.app import build_app
from tokenwire.coordinator.fleet.pool import WorkerPool


async def test_workers_are_listed(tmp_path: Path) -> None:
    """Those that get requests are healthy."""
    async with served(tmp_path, workers=2) as client:
        first, second = (await client.get("/admin/workers")).json()

    assert first == {
        **{"worker_id": first["url"], "url": first["url"], "api_path": "", "model_name": "simulated", "weight": 1},
        **{"healthy": True, "active_requests": 0},
    }
    assert {Path(each["url"]).stem for each in (first, second)} == {"worker-0", "worker-1"}


async def test_a_worker_that_is_not_connected_is_not_healthy() -> None:
    """Its model is not known yet."""
    app = build_app(all_routes("127.0.0.1:1"))
    pool: WorkerPool = app.state.pool
    async with client_of(app) as client:
        await until(lambda: bool(pool.sessions))
        (worker,) = (await client.get("/admin/workers")).json()

    assert (worker["url"], worker["model_name"], worker["healthy"]) == ("127.0.0.1:1", None, False)


async def test_workers_are_not_registered_by_requests(tmp_path: Path) -> None:
    """Nor removed, whatever their addresses; the error says how a coordinator finds them."""
    async with served(tmp_path) as client:
        (listed,) = (await client.get("/admin/workers")).json()
        for answer in (
            await client.post("/admin/workers", json={"url": "http://127.0.0.1:1/v1", "weight": 1}),
            await client.delete("/admin/workers/127.0.0.1:1"),
            await client.delete(f"/admin/workers/{listed['worker_id']}"),
        ):
            assert answer.status_code == 400
            assert "--worker" in answer.json()["error"]["message"]
        assert len((await client.get("/admin/workers")).json()) == 1
