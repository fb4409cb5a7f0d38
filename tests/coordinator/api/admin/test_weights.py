"""Routes that update weights."""

from pathlib import Path

import pytest

from tests.coordinator.api.applications import served
from tokenwire.coordinator.api.admin.weights import version_of


@pytest.mark.parametrize(
    ("directory", "version"), [("/weights/step_7", "step_7"), ("/weights/step_7/", "step_7"), ("a/../b", "b")]
)
def test_the_default_version_is_the_directorys_name(directory: str, version: str) -> None:
    """However its path ends."""
    assert version_of(directory) == version


async def test_a_transfer_runs_in_stages(tmp_path: Path) -> None:
    """Each stage has vLLM's message, and the last one sets the version."""
    stages = [
        ("/init_weight_transfer_engine", {"init_info": {}}, "Weight transfer initialized"),
        ("/start_weight_update", {}, "Weight update started"),
        ("/update_weights", {"update_info": {"names": []}}, "Weights updated"),
        ("/finish_weight_update", {"weight_version": "t1"}, "Weight update finished"),
        ("/shutdown_weight_transfer_engine", {}, "Weight transfer shut down"),
    ]
    async with served(tmp_path) as client:
        messages = [(await client.post(path, json=body)).json() for path, body, _ in stages]
        version = (await client.get("/weight_info")).json()

    assert messages == [{"message": message} for _, _, message in stages]
    assert version == {"weight_version": "t1"}


async def test_an_update_needs_a_transfer_or_a_directory(tmp_path: Path) -> None:
    """A directory of null does nothing."""
    async with served(tmp_path) as client:
        neither = await client.post("/update_weights", json={})
        nothing = await client.post("/update_weights", json={"weight_dir": None})
        version = (await client.get("/weight_info")).json()

    assert (neither.status_code, neither.json()["error"]["param"]) == (400, "weight_dir")
    assert nothing.json() == {"status": "ok"}
    assert version == {"weight_version": "default"}


async def test_weights_can_be_labelled_and_reloaded(tmp_path: Path) -> None:
    """Reloading them from the model's own directory restores their first version."""
    async with served(tmp_path) as client:
        labelled = await client.post("/update_weight_version", json={"new_version": "v2"})
        after = (await client.get("/weight_info")).json()
        await client.post("/reload_weights")
        reloaded = (await client.get("/weight_info")).json()

    assert labelled.json() == {"success": True, "new_version": "v2"}
    assert [after["weight_version"], reloaded["weight_version"]] == ["v2", "default"]
