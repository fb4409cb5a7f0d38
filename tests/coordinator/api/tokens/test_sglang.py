"""SGLang's routes."""

import json
from pathlib import Path

from tests.coordinator.api.applications import served

SAMPLING = {"sampling_params": {"max_new_tokens": 4, "temperature": 0}}


async def test_a_batch_has_a_list_of_answers(tmp_path: Path) -> None:
    """Each as if it were requested alone; PUT is POST."""
    async with served(tmp_path) as client:
        one = (await client.post("/generate", json={"text": "Hi", **SAMPLING})).json()
        put = (await client.put("/generate", json={"text": "Hi", **SAMPLING})).json()
        batch = (await client.post("/generate", json={"text": ["Hi", "Ho"], **SAMPLING})).json()

    assert one["text"] == put["text"] == batch[0]["text"]
    assert len(batch) == 2
    assert one["meta_info"]["finish_reason"] == {"type": "length", "length": 4}


async def test_the_last_chunk_is_the_full_response(tmp_path: Path) -> None:
    """Its id is the client's."""
    async with served(tmp_path) as client:
        full = (await client.post("/generate", json={"text": "Hi", "rid": "mine", **SAMPLING})).json()
        stream = await client.post("/generate", json={"text": "Hi", "rid": "mine", **SAMPLING, "stream": True})

    *_, last, done, _ = stream.text.split("\n\n")
    assert done == "data: [DONE]"
    assert json.loads(last.removeprefix("data: "))["output_ids"] == full["output_ids"]
    assert full["meta_info"]["id"] == "mine"


async def test_the_service_is_a_routers_only_worker(tmp_path: Path) -> None:
    """It routes to all of its workers itself."""
    async with served(tmp_path, workers=2) as client:
        workers = (await client.get("/workers")).json()
        urls = (await client.get("/list_workers")).json()

    assert workers == {"workers": [{"id": "tokenwire", "url": "http://localhost"}]}
    assert urls == {"urls": ["http://localhost"]}
