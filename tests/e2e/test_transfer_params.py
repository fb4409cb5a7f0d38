"""Parameters that make an engine read other engines' memory are rejected on all routes by default."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.processes import Service, simulated_service

MESSAGES = [{"role": "user", "content": "Hi"}]
REMOTE = {"do_remote_prefill": True, "remote_host": "10.0.0.1", "remote_port": 1}
EXTRA = {"extra_args": {"kv_transfer_params": REMOTE}}
CHAT, TEXT, GENERATE = "/v1/chat/completions", "/v1/completions", "/inference/v1/generate"
CASES: list[tuple[str, dict[str, Any], str]] = [
    (CHAT, {"messages": MESSAGES, "kv_transfer_params": REMOTE}, "kv_transfer_params"),
    (CHAT, {"messages": MESSAGES, "ec_transfer_params": REMOTE}, "ec_transfer_params"),
    (CHAT, {"messages": MESSAGES, "vllm_xargs": {"kv_transfer_params": "x"}}, "kv_transfer_params"),
    (
        CHAT,
        {"messages": MESSAGES, "kv_transfer_params": {**REMOTE, "prompt_token_ids": [1]}},
        "kv_transfer_params",
    ),
    ("/v1/chat/completions/tokens", {"messages": MESSAGES, "tokens": [1], "kv_transfer_params": REMOTE}, "kv_transfer"),
    (TEXT, {"prompt": "Hi", "kv_transfer_params": REMOTE}, "kv_transfer_params"),
    (TEXT, {"prompt": "Hi", "vllm_xargs": {"ec_transfer_params": [1]}}, "ec_transfer_params"),
    ("/v1/responses", {"input": "Hi", "kv_transfer_params": REMOTE}, "kv_transfer_params"),
    ("/v1/responses", {"input": "Hi", "vllm_xargs": {"kv_transfer_params": "x"}}, "kv_transfer_params"),
    ("/v1/messages", {"model": "sim", "messages": MESSAGES, "max_tokens": 1, "kv_transfer_params": REMOTE}, "kv_tran"),
    (GENERATE, {"token_ids": [1], "sampling_params": {}, "kv_transfer_params": REMOTE}, "kv_transfer_params"),
    (GENERATE, {"token_ids": [1], "sampling_params": {}, "ec_transfer_params": REMOTE}, "ec_transfer_params"),
    (GENERATE, {"token_ids": [1], "sampling_params": EXTRA}, "kv_transfer_params"),
    (GENERATE, {"token_ids": [1], "sampling_params": {"kv_transfer_params": REMOTE}}, "kv_transfer_params"),
    ("/generate", {"text": "Hi", "sampling_params": EXTRA}, "kv_transfer_params"),
    ("/generate/", {"prompts": ["Hi"], "generation_kwargs": EXTRA}, "kv_transfer_params"),
    ("/chat/", {"messages": [MESSAGES], "generation_kwargs": EXTRA}, "kv_transfer_params"),
    ("/generate", {"text": "Hi", "sampling_params": {"kv_transfer_params": REMOTE}}, "kv_transfer_params"),
    ("/generate", {"text": "Hi", "kv_transfer_params": REMOTE}, "kv_transfer_params"),
    ("/generate/", {"prompts": ["Hi"], "kv_transfer_params": REMOTE}, "kv_transfer_params"),
    ("/chat/", {"messages": [MESSAGES], "ec_transfer_params": REMOTE}, "ec_transfer_params"),
    ("/get_sequence_logprobs/", {"sequences": [[1]], "prompt_lengths": [1], "kv_transfer_params": REMOTE}, "kv_tr"),
    ("/v1/messages/count_tokens", {"model": "sim", "messages": MESSAGES, "kv_transfer_params": REMOTE}, "kv_tran"),
    (
        "/v1/messages/count_tokens",
        {"model": "sim", "messages": MESSAGES, "vllm_xargs": {"kv_transfer_params": "x"}},
        "kv_tran",
    ),
    ("/tokenize", {"prompt": "Hi", "kv_transfer_params": {"prompt_token_ids": [1]}}, "kv_transfer_params"),
    ("/v1/tokenize", {"messages": MESSAGES, "ec_transfer_params": REMOTE}, "ec_transfer_params"),
    ("/detokenize", {"tokens": [1], "kv_transfer_params": REMOTE}, "kv_transfer_params"),
]


@pytest.mark.parametrize(("path", "body", "name"), CASES)
def test_transfer_parameters_are_rejected(service: Service, path: str, body: dict[str, Any], name: str) -> None:
    """Every route rejects them by name, also inside extra arguments."""
    response = httpx.post(service.url + path, json=body)

    assert response.status_code == 400, response.text
    assert name in response.json()["error"]["message"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (CHAT, {"messages": MESSAGES, "max_tokens": 1, "kv_transfer_params": {"prompt_token_ids": [1, 2]}}),
        (TEXT, {"prompt": "Hi", "max_tokens": 1, "kv_transfer_params": {}, "vllm_xargs": {"mine": 1}}),
        (GENERATE, {"token_ids": [1], "sampling_params": {"max_tokens": 1, "extra_args": {"kv_transfer_params": {}}}}),
    ],
)
def test_requests_without_a_transfer_are_served(service: Service, path: str, body: dict[str, Any]) -> None:
    """Empty objects, a prompt as ids, and other extra arguments pass."""
    response = httpx.post(service.url + path, json=body)

    assert response.status_code == 200, response.text


@pytest.mark.slow
def test_transfer_parameters_can_be_allowed(tmp_path: Path) -> None:
    """With --allow-kv-transfer-params they reach the worker unchanged."""
    options = ("--allow-kv-transfer-params", "--enable-render-route")
    with simulated_service(tmp_path, coordinator_options=options) as service:
        body = {"prompt": "Hi", "max_tokens": 1, "kv_transfer_params": REMOTE, "ec_transfer_params": {"a": 1}}
        rendered = httpx.post(f"{service.url}/tokenwire/v1/completions/render", json=body).json()
        response = httpx.post(f"{service.url}/v1/completions", json=body)

    sampling = rendered["submits"][0]["sampling_params"]
    assert "do_remote_prefill" in sampling["kv_transfer_params_json"]
    assert json.loads(sampling["ec_transfer_params_json"]) == {"a": 1}
    assert response.status_code == 200, response.text
