"""Token-in, token-out with real vLLM: every contract sees the ids that a trainer computes, and makes the same."""

import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from transformers import AutoTokenizer

from tests.conformance.servers import serving
from tests.processes import Service
from tokenwire.paths import default_cache_dir
from worker.embedded_model import prepare_embedded_model

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]

CONVERSATIONS: dict[str, list[dict[str, Any]]] = {
    "short": [{"role": "user", "content": "What is the capital of France?"}],
    "own system prompt": [
        {"role": "system", "content": "You are brief."},
        {"role": "user", "content": "Count to five, “slowly” – 你好 🙂"},
    ],
    "several turns": [
        {"role": "user", "content": "Name a colour."},
        {"role": "assistant", "content": "Blue.\n\nOr green."},
        {"role": "user", "content": "Another one?"},
    ],
}
TOKENS = 24


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Plain `tokenwire serve`."""
    with serving(tmp_path_factory.mktemp("real-tokens")) as started:
        yield started


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    """What a trainer has: the model's folder and transformers."""
    return AutoTokenizer.from_pretrained(prepare_embedded_model(default_cache_dir(), lambda _: None))


def post(service: Service, path: str, body: dict[str, Any]) -> Any:
    """Post a request that is to succeed; returns its answer."""
    response = httpx.post(service.url + path, json=body, timeout=120)
    assert response.status_code == 200, response.text
    return response.json()


@pytest.mark.parametrize("name", list(CONVERSATIONS))
def test_ids_are_the_same_everywhere(service: Service, tokenizer: Any, name: str) -> None:
    """Rendered by the trainer, by /tokenize, for a chat, and handed in: one prompt; and one completion of it."""
    messages = CONVERSATIONS[name]
    text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    local = tokenizer.encode(text, add_special_tokens=False)
    sampling = {"temperature": 0, "max_tokens": TOKENS}
    openai = {**sampling, "return_token_ids": True}

    tokenized = post(service, "/tokenize", {"messages": messages})["tokens"]
    chat = post(service, "/v1/chat/completions", {**openai, "messages": messages})
    given = post(service, "/v1/chat/completions/tokens", {**openai, "messages": messages, "tokens": local})
    completion = post(service, "/v1/completions", {**openai, "prompt": local})
    generated = post(
        service,
        "/inference/v1/generate",
        {"token_ids": local, "sampling_params": sampling, "return_token_ids": True, "output_mode": "text"},
    )
    sglang = post(
        service, "/generate", {"input_ids": local, "sampling_params": {"temperature": 0, "max_new_tokens": TOKENS}}
    )
    trl = post(service, "/generate/", {"prompts": [local], **sampling})

    assert local == tokenized == chat["prompt_token_ids"] == given["prompt_token_ids"] == generated["prompt_token_ids"]
    assert local == completion["choices"][0]["prompt_token_ids"] == trl["prompt_ids"][0]
    made = [answer["choices"][0]["token_ids"] for answer in (chat, given, completion, generated)]
    assert made == [made[0]] * 4
    assert made[0] == sglang["output_ids"] == trl["completion_ids"][0]
    texts = [answer["choices"][0]["message"]["content"] for answer in (chat, given)]
    assert [*texts, completion["choices"][0]["text"], generated["choices"][0]["text"], sglang["text"]] == [texts[0]] * 5


def test_an_abort_in_mid_reply_keeps_what_was_made(service: Service) -> None:
    """The ids so far are those that the whole reply begins with, the reason is abort, and the status is 200."""
    body = {"request_id": "mine", "token_ids": [504, 1743, 282], "sampling_params": {"temperature": 0, "logprobs": 0}}
    answers: list[httpx.Response] = []

    def generate() -> None:
        answers.append(httpx.post(service.url + "/inference/v1/generate", json=body, timeout=120))

    before = service.server_info().generated_tokens
    thread = threading.Thread(target=generate)
    thread.start()
    while service.server_info().generated_tokens < before + 5:
        assert thread.is_alive()
    httpx.post(service.url + "/inference/v1/abort_requests", json={"request_ids": ["generate-tokens-mine"]}, timeout=30)
    thread.join()

    (answer,) = answers
    (choice,) = answer.json()["choices"]
    assert (answer.status_code, choice["finish_reason"]) == (200, "abort")
    count = len(choice["token_ids"])
    assert len(choice["logprobs"]["content"]) == count >= 5
    assert choice["weight_versions"] == [{"version": "default", "start": 0, "end": count}]
    body["sampling_params"] = {"temperature": 0, "max_tokens": count}
    assert post(service, "/inference/v1/generate", body)["choices"][0]["token_ids"] == choice["token_ids"]
