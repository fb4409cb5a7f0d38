"""POST /inference/v1/generate."""

import json
from pathlib import Path

from tests.coordinator.api.applications import served

PATH = "/inference/v1/generate"
BODY = {"token_ids": [65, 66], "sampling_params": {"max_tokens": 4, "temperature": 0, "logprobs": 1}}


async def test_a_stream_has_the_ids_of_the_full_response(tmp_path: Path) -> None:
    """With their log-probabilities."""
    async with served(tmp_path) as client:
        full = (await client.post(PATH, json=BODY)).json()
        stream = await client.post(PATH, json={**BODY, "stream": True})

    *events, done, end = stream.text.split("\n\n")
    choices = [json.loads(event.removeprefix("data: "))["choices"][0] for event in events]
    (choice,) = full["choices"]
    assert (done, end) == ("data: [DONE]", "")
    assert [token_id for each in choices for token_id in each["token_ids"]] == choice["token_ids"]
    assert [entry for each in choices for entry in each["logprobs"]["content"]] == choice["logprobs"]["content"]


async def test_an_answer_has_text_and_prompt_only_on_request(tmp_path: Path) -> None:
    """The client's id is part of the response's."""
    async with served(tmp_path) as client:
        plain = (await client.post(PATH, json={**BODY, "request_id": "mine"})).json()
        requested = (await client.post(PATH, json={**BODY, "output_mode": "text", "return_token_ids": True})).json()

    assert plain["request_id"] == "generate-tokens-mine"
    assert ("text" in plain["choices"][0], plain["prompt_token_ids"]) == (False, None)
    assert requested["choices"][0]["text"]
    assert requested["prompt_token_ids"] == [65, 66]
    assert requested["usage"]["completion_tokens"] == len(requested["choices"][0]["token_ids"]) == 4


async def test_media_are_rejected_by_name(tmp_path: Path) -> None:
    """Only ids are prompts here."""
    async with served(tmp_path) as client:
        rejected = await client.post(PATH, json={**BODY, "features": {"image": "x"}})
        params = await client.post(PATH, json={**BODY, "sampling_params": {"kv_transfer_params": {"a": 1}}})

    assert (rejected.status_code, rejected.json()["error"]["param"]) == (400, "features")
    assert (params.status_code, params.json()["error"]["param"]) == (400, "kv_transfer_params")
