"""One real vLLM for many tests: ids that every contract sees and makes alike, weights, adapters, pauses, its end."""

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.conformance.parity.corpus.prompts_used import STORY
from tests.conformance.parity.request import chat
from tests.e2e.checkpoints import adapter, changed_weights
from tests.e2e.generating import TOKENS, Generating, kept_by_pause, under_way
from tests.e2e.posting import post
from tests.e2e.reader import Reader
from tests.lazily import Lazily
from tests.processes import Service
from tests.tiny_model import tiny_model

transformers = Lazily("transformers")

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]

CHAT = "/v1/chat/completions"
BODY: dict[str, Any] = {"messages": [{"role": "user", "content": "Name a colour"}], "max_tokens": 12, "temperature": 0}
_ID_TOKENS = 12
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


@pytest.fixture
def service(trainable: Service) -> Service:
    """The tiny model, with room for one adapter."""
    return trainable


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    """What a trainer has: the model's folder and transformers."""
    return transformers.AutoTokenizer.from_pretrained(tiny_model())


@pytest.mark.parametrize("name", list(CONVERSATIONS))
def test_ids_are_the_same_everywhere(service: Service, tokenizer: Any, name: str) -> None:
    """Rendered by the trainer, by /tokenize, for a chat, and handed in: one prompt; and one completion of it."""
    messages = CONVERSATIONS[name]
    text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    local = tokenizer.encode(text, add_special_tokens=False)
    sampling = {"temperature": 0, "max_tokens": _ID_TOKENS}
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
        service, "/generate", {"input_ids": local, "sampling_params": {"temperature": 0, "max_new_tokens": _ID_TOKENS}}
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
    """The ids so far are those that the full reply begins with, the reason is abort, and the status is 200."""
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


@pytest.fixture
def client(service: Service) -> Iterator[httpx.Client]:
    """A client of a fleet that runs with its first weights."""
    with httpx.Client(base_url=service.url, timeout=120) as client:
        yield client
        assert client.post("/resume").status_code == 200
        assert client.post("/reload_weights").status_code == 200


def reply_of(client: httpx.Client, model: str | None = None) -> str:
    """Return a model's reply."""
    answer = client.post(CHAT, json={**BODY, "model": model})
    assert answer.status_code == 200, answer.text
    return str(answer.json()["choices"][0]["message"]["content"])


def test_weights_change_under_running_requests(service: Service, client: httpx.Client, tmp_path: Path) -> None:
    """Paused, updated from a directory and resumed: no request is lost, running ones report which weights made which
    tokens, one that came during the pause has only the new ones, and answers are others until the first weights
    are back."""
    step = changed_weights(tiny_model(), tmp_path / "step_1")
    before = reply_of(client)
    running = kept_by_pause(service, client, 504, 505, 506)

    late = Generating(service.url, 507)
    service.wait_slots(4)
    assert client.post("/update_weights", json={"weight_dir": str(step)}).json() == {"status": "ok"}
    assert client.get("/is_paused").json() == {"is_paused": True}
    assert client.post("/resume").json() == {"status": "resumed"}

    for thread in (*running, late):
        thread.join()
        assert len(thread.choice["token_ids"]) == TOKENS
        assert thread.choice["finish_reason"] == "length"
    for thread in running:
        first, second = thread.choice["weight_versions"]
        assert (first["version"], first["start"], second["version"], second["end"]) == ("default", 0, "step_1", TOKENS)
        assert 0 < first["end"] == second["start"] < TOKENS
    assert late.choice["weight_versions"] == [{"version": "step_1", "start": 0, "end": TOKENS}]
    client.post("/reset_prefix_cache")
    assert reply_of(client) != before
    assert client.post("/reload_weights").json() == {"status": "ok"}
    client.post("/reset_prefix_cache")
    assert reply_of(client) == before


@pytest.mark.parametrize(("mode", "reason", "complete"), [("abort", "abort", False), ("wait", "length", True)])
def test_pauses_end_what_runs(service: Service, client: httpx.Client, mode: str, reason: str, complete: bool) -> None:
    """Abort gives partial replies, wait full ones; new requests are held by both."""
    (running,) = under_way(service, 504)

    assert client.post("/pause", params={"mode": mode}).status_code == 200

    running.join()
    assert running.choice["finish_reason"] == reason
    assert (len(running.choice["token_ids"]) == TOKENS) is complete
    held = Generating(service.url, 505)
    service.wait_slots(1)
    steps = service.server_info().steps
    held.join(0.3)
    assert service.server_info().steps == steps
    client.post("/resume")
    held.join()
    assert len(held.choice["token_ids"]) == TOKENS


def test_an_adapter_changes_the_reply(client: httpx.Client, tmp_path: Path) -> None:
    """A real adapter is loaded, listed, used, kept over a weight update, and unloaded; a missing one is a 404."""
    before = reply_of(client)
    missing = client.post("/v1/load_lora_adapter", json={"lora_name": "red", "lora_path": str(tmp_path / "no")})
    assert missing.status_code == 404
    body = {"lora_name": "red", "lora_path": str(adapter(tiny_model(), tmp_path / "red"))}
    assert client.post("/v1/load_lora_adapter", json=body).status_code == 200
    assert "red" in [card["id"] for card in client.get("/v1/models").json()["data"]]
    red = reply_of(client, "red")
    assert red != before
    assert reply_of(client) == before

    assert client.post("/reload_weights").status_code == 200
    assert reply_of(client, "red") == red

    assert client.post("/v1/unload_lora_adapter", json={"lora_name": "red"}).status_code == 200
    assert client.post(CHAT, json={**BODY, "model": "red"}).status_code == 404
    assert reply_of(client) == before


@pytest.mark.parametrize("fields", [{"prompt_logprobs": 1}, {"echo": True, "logprobs": 1}], ids=["own", "echo"])
def test_prompt_logprobs_are_rejected_where_they_kill_the_engine(client: httpx.Client, fields: dict[str, Any]) -> None:
    """In a batch they end vLLM's engine for CPUs if it has adapters; the error gives a remedy, and others continue."""
    rejected = client.post("/v1/completions", json={"prompt": "The sea is", "max_tokens": 4, **fields})

    assert rejected.status_code == 400
    message = rejected.json()["error"]["message"]
    assert "supports prompt_logprobs" in message
    assert "without --enable-lora" in message
    assert reply_of(client)


def test_unsupported_operations_are_rejected_with_a_remedy(client: httpx.Client) -> None:
    """Sleep and transfers were not enabled at its start, and NCCL needs GPUs: the errors give a remedy."""
    config = client.get("/server_info?config_format=json").json()["vllm_config"]
    assert config["lora_config"]["max_lora_rank"] == 8
    assert config["model_config"]["dtype"] == "torch.float32"
    for path, body, hint in (
        ("/sleep?level=1", {}, "--enable-sleep-mode"),
        ("/init_weight_transfer_engine", {"init_info": {"rank_offset": 1}}, "--weight-transfer-config"),
        ("/init_communicator/", {"host": "127.0.0.1", "port": 1}, "weight_dir"),
    ):
        answer = client.post(path, json=body)
        assert answer.status_code == 501
        assert hint in answer.json()["error"]["message"]


def test_a_killed_engine_ends_streams_and_service(service: Service) -> None:
    """kill -9 of vLLM's engine core: streams end with an error event, the worker exits with 1, and serve with it."""
    family = psutil.Process(service.coordinator.popen.pid).children(recursive=True)
    (core,) = [each for each in family if "EngineCore" in " ".join(each.cmdline())]
    case = chat(STORY, ignore_eos=True, max_tokens=1500, stream=True)
    before = service.server_info().generated_tokens
    with Reader(service.url, case) as one, Reader(service.url, case) as other:
        service.wait_slots(2)
        while service.server_info().generated_tokens < before + 6:
            time.sleep(0.02)

        os.kill(core.pid, signal.SIGKILL)

    for text_seen in (one.text, other.text):
        *_, error, done, end = text_seen.split("\n\n")
        assert json.loads(error.removeprefix("data: "))["error"]["code"] in (500, 503)
        assert (done, end) == ("data: [DONE]", "")
    assert service.coordinator.wait_exit(60) == 1
    assert "worker exited with code 1" in service.coordinator.log
    _, alive = psutil.wait_procs(family, timeout=15)
    assert not alive
