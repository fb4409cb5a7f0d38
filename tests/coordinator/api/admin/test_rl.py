"""/v1/rl in Dynamo's format."""

from pathlib import Path

from tests.coordinator.api.applications import all_routes, client_of, served
from tokenwire.coordinator.app import build_app

ADMIN = {"Authorization": "Bearer open"}


async def test_operations_return_the_state_of_every_worker(tmp_path: Path) -> None:
    """With the version of the weights."""
    (weights := tmp_path / "step_9").mkdir()
    async with served(tmp_path, workers=2) as client:
        updated = (await client.post("/v1/rl/update_weights", json={"weight_dir": str(weights)})).json()
        labelled = (
            await client.post("/v1/rl/update_weights", json={"weight_dir": str(weights), "weight_version": "v1"})
        ).json()
        untouched = (await client.post("/v1/rl/update_weights", json={})).json()

    assert updated["applied_weight_version"] == "step_9"
    assert [answer["applied_weight_version"] for answer in (labelled, untouched)] == ["v1", "v1"]
    assert len(untouched["workers"]) == 2


async def test_a_failed_operation_has_the_failures(tmp_path: Path) -> None:
    """As a 404 where all workers agree; nothing is applied."""
    async with served(tmp_path) as client:
        failed = await client.post("/v1/rl/update_weights", json={"weight_dir": "/nowhere"})
        state = (await client.get("/v1/rl/state")).json()

    assert failed.status_code == 404
    assert state["applied_weight_version"] == "default"


async def test_the_state_has_pauses_and_adapters(tmp_path: Path) -> None:
    """A paused fleet is ready too."""
    async with served(tmp_path, workers=2) as client:
        await client.post("/v1/rl/pause")
        await client.post("/v1/rl/load_lora_adapter", json={"lora_name": "blue", "lora_path": "/blue"})
        state = (await client.get("/v1/rl/state")).json()
        ready = await client.get("/v1/rl/ready")

    assert (state["ready"], state["engine_alive"], state["pause_state"]) == (True, True, "paused")
    (adapter,) = state["loras"]
    assert (adapter["name"], len(adapter["loaded_on"])) == ("blue", 2)
    assert (ready.status_code, ready.json()["ready"]) == (200, True)


async def test_unloading_an_unknown_adapter_is_no_error(tmp_path: Path) -> None:
    """Clients unload adapters that they may have unloaded before."""
    async with served(tmp_path) as client:
        assert (await client.post("/v1/rl/unload_lora_adapter", json={"lora_name": "x"})).json()["status"] == "ok"


async def test_without_workers_nothing_is_ready(tmp_path: Path) -> None:
    """The state has the reason; liveness is a 503 in prime-rl's words."""
    app = build_app(all_routes(f"unix:{tmp_path}/missing.sock"))
    async with client_of(app) as client:
        state = await client.get("/v1/rl/state", headers=ADMIN)
        alive = await client.get("/v1/rl/liveness", headers=ADMIN)

    assert (state.status_code, state.json()["ready"], state.json()["engine_alive"]) == (503, False, False)
    assert state.json()["message"]
    assert (alive.status_code, alive.json()["status"]) == (503, "engine_unresponsive")
