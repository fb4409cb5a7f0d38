"""The routes that show what workers would get."""

from pathlib import Path

from tests.coordinator.api.applications import served
from tokenwire.coordinator.auth.api_keys import AuthSettings
from tokenwire.coordinator.output.settings import ApiSettings

MESSAGES = [{"role": "user", "content": "Hi"}]


async def test_it_is_disabled_by_default(tmp_path: Path) -> None:
    """Rendered prompts are not available."""
    async with served(tmp_path, api=ApiSettings()) as client:
        assert (
            await client.post("/tokenwire/v1/chat/completions/render", json={"messages": MESSAGES})
        ).status_code == 404


async def test_requests_are_shown_as_workers_get_them(tmp_path: Path) -> None:
    """Prompt, ids, parameters with defaults, and the coordinator's own part; no token is generated."""
    async with served(tmp_path) as client:
        body = {"max_tokens": 5, "stop": ["X"], "temperature": 0.5, "seed": 7}
        chat = (await client.post("/tokenwire/v1/chat/completions/render", json={"messages": MESSAGES, **body})).json()
        text = (
            await client.post("/tokenwire/v1/completions/render", json={"prompt": ["a", "b"], **body, "n": 2})
        ).json()
        wrong = await client.post("/tokenwire/v1/completions/render", json={"prompt": "a", "suffix": "b"})
        ((worker,),) = [each["workers"] for each in (await client.get("/status.json")).json()["processes"]]

    assert worker["tokens"] == 0
    assert chat["prompts"] == ["<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"]
    (submit,) = chat["submits"]
    assert submit["prompt_token_ids"][1:6] == [ord(character) for character in "user\n"]
    assert submit["sampling_params"]["max_tokens"] == 5
    assert submit["sampling_params"]["temperature"] == 0.5
    assert "stop" not in submit["sampling_params"]
    assert chat["text"]["stop"] == ["X"]
    assert chat["parsing"] is None
    assert text["prompts"] == ["a", "b"]
    assert [submit["prompt_token_ids"] for submit in text["submits"]] == [[97], [98]]
    assert text["n"] == 2
    assert wrong.status_code == 400


async def test_the_priority_is_the_one_that_the_key_allows(tmp_path: Path) -> None:
    """As a worker would get it: clients cannot go before others by a header."""
    (keys := tmp_path / "keys").write_text('[{"tenant": "t", "key": "open", "min_priority": 0}]')
    headers = {"X-Vllm-Priority": "-7"}
    async with served(tmp_path, auth=AuthSettings(keys)) as client:
        path = "/tokenwire/v1/{}/render"
        chat = await client.post(path.format("chat/completions"), json={"messages": MESSAGES}, headers=headers)
        text = await client.post(path.format("completions"), json={"prompt": "a", "priority": -7})
        later = await client.post(path.format("completions"), json={"prompt": "a", "priority": 7})

    assert ["priority" in each.json()["submits"][0] for each in (chat, text)] == [False, False]
    assert later.json()["submits"][0]["priority"] == "7"
