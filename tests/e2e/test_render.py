"""The render route, for debugging."""

from pathlib import Path

import httpx

from tests.processes import Service, simulated_service

MESSAGES = [{"role": "user", "content": "Hi"}]


def test_it_is_disabled_by_default(service: Service) -> None:
    """Rendered prompts are not available."""
    assert httpx.post(f"{service.url}/v1/chat/completions/render", json={"messages": MESSAGES}).status_code == 404


def test_requests_are_shown_as_workers_get_them(folder: Path) -> None:
    """Prompt, ids, parameters with defaults, and the coordinator's own part; no token is generated."""
    with simulated_service(folder, coordinator_options=["--enable-render-route"]) as service:
        body = {"max_tokens": 5, "stop": ["X"], "temperature": 0.5, "seed": 7}
        chat = httpx.post(f"{service.url}/v1/chat/completions/render", json={"messages": MESSAGES, **body}).json()
        text = httpx.post(f"{service.url}/v1/completions/render", json={"prompt": ["a", "b"], **body, "n": 2}).json()
        wrong = httpx.post(f"{service.url}/v1/completions/render", json={"prompt": "a", "suffix": "b"})

        assert service.server_info().generated_tokens == 0

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
