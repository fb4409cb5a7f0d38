"""Routes of LoRA adapters."""

from pathlib import Path
from typing import Any

import pytest

from tests.coordinator.api.applications import served

RED = {"lora_name": "red", "lora_path": "/adapters/red"}


async def test_a_loaded_adapter_is_replaced_only_on_request(tmp_path: Path) -> None:
    """vLLM's route needs `load_inplace`, prime-rl's always replaces."""
    async with served(tmp_path) as client:
        loaded = await client.post("/v1/load_lora_adapter", json=RED)
        again = await client.post("/v1/load_lora_adapter", json=RED)
        in_place = await client.post("/v1/load_lora_adapter", json={**RED, "load_inplace": True})
        replaced = await client.post("/load_lora_adapter", json={**RED, "lora_path": "/adapters/other"})
        (card,) = [card for card in (await client.get("/v1/models")).json()["data"] if card["id"] == "red"]

    assert loaded.text == "Success: LoRA adapter 'red' added successfully."
    assert [again.status_code, in_place.status_code] == [400, 200]
    assert replaced.json() == {"status": "ok"}
    assert card["root"] == "/adapters/other"


async def test_an_unloaded_adapter_is_gone(tmp_path: Path) -> None:
    """Unloading it again is a 404."""
    async with served(tmp_path) as client:
        await client.post("/v1/load_lora_adapter", json=RED)
        removed = [await client.post("/v1/unload_lora_adapter", json={"lora_name": "red"}) for _ in range(2)]

    assert removed[0].text == "Success: LoRA adapter 'red' removed successfully."
    assert [answer.status_code for answer in removed] == [200, 404]


@pytest.mark.parametrize("body", [{}, {**RED, "lora_name": ""}, {**RED, "lora_path": ""}])
async def test_adapters_need_a_name_and_a_path(tmp_path: Path, body: dict[str, Any]) -> None:
    """Empty ones count as absent."""
    async with served(tmp_path) as client:
        for path in ("/v1/load_lora_adapter", "/load_lora_adapter"):
            rejected = await client.post(path, json=body)
            assert rejected.status_code == 400
            assert "lora_" in rejected.json()["error"]["message"]
