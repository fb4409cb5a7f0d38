"""Discovery of admin endpoints."""

from pathlib import Path

from tests.coordinator.api.applications import served


async def test_each_model_is_one_endpoint(tmp_path: Path) -> None:
    """One call here reaches all of its workers; the identifier stays the same."""
    async with served(tmp_path, workers=2) as client:
        first, second = [(await client.get("/v1/rl/workers")).json() for _ in range(2)]

    assert first == second
    (entry,) = first["workers"]
    assert (entry["model"], entry["world_size"]) == ("simulated", 2)
    assert entry["admin_base_url"] == entry["system_url"] == "http://localhost"
    assert "/collective_rpc" in entry["routes"]
    assert "error" not in entry
