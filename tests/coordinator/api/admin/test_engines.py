"""vLLM's routes for engines."""

from pathlib import Path

import pytest

from tests.coordinator.api.applications import served


async def test_the_world_size_is_that_of_all_workers(tmp_path: Path) -> None:
    """Trainers take part as one more process."""
    async with served(tmp_path, workers=3) as client:
        assert (await client.get("/get_world_size")).json() == {"world_size": 3}
        assert (await client.get("/get_world_size?include_dp=false")).json() == {"world_size": 3}


async def test_the_server_info_is_one_workers_configuration(tmp_path: Path) -> None:
    """With the number of workers."""
    async with served(tmp_path, workers=2) as client:
        info = (await client.get("/server_info?config_format=json")).json()

    assert info["workers"] == 2
    assert info["vllm_config"]["parallel_config"]["data_parallel_size"] == 1


async def test_caches_are_reset_on_all_workers(tmp_path: Path) -> None:
    """With and without the slash that older clients send."""
    async with served(tmp_path, workers=2) as client:
        answers = [await client.post(path) for path in ("/reset_prefix_cache", "/reset_prefix_cache/")]

    assert [answer.json() for answer in answers] == [{"success": True}] * 2


@pytest.mark.parametrize(
    ("method", "args", "kwargs"),
    [("update_weights_from_path", ["{weights}"], {}), ("reload_weights", [], {"weights_path": "{weights}"})],
)
async def test_a_call_that_loads_weights_is_recorded(
    tmp_path: Path, method: str, args: list[str], kwargs: dict[str, str]
) -> None:
    """Workers that join later load them too, so the version is known."""
    (weights := tmp_path / "step_3").mkdir()
    body = {
        "method": method,
        "args": [arg.format(weights=weights) for arg in args],
        "kwargs": {name: value.format(weights=weights) for name, value in kwargs.items()},
    }
    async with served(tmp_path, workers=2) as client:
        answer = await client.post("/collective_rpc", json=body)
        version = (await client.get("/weight_info")).json()

    assert answer.json() == {"results": [None, None]}
    assert version == {"weight_version": "step_3"}


async def test_other_calls_go_to_the_engines(tmp_path: Path) -> None:
    """A simulated engine has none."""
    async with served(tmp_path) as client:
        assert (await client.post("/collective_rpc", json={"method": "reload_weights"})).status_code == 501


async def test_liveness_is_the_engines(tmp_path: Path) -> None:
    """In prime-rl's words; without a worker it is a 503."""
    async with served(tmp_path) as client:
        assert (await client.get("/liveness")).json() == {"status": "ok"}
