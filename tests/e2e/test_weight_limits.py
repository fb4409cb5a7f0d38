"""Limits on the age of weights, with real processes and updates of weights while replies are streamed."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import OpenAI

from tests.processes import Service, simulated_service, wait_queued

CHAT = "/v1/chat/completions"
LONG: dict[str, Any] = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 600, "ignore_eos": True}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Two workers behind a coordinator with admin routes."""
    folder = tmp_path_factory.mktemp("limits")
    options = ("--sim-step-ms", "5", "--served-model-name", "sim")
    with simulated_service(
        folder, *options, workers=2, coordinator_options=["--enable-rl", "--queue-timeout", "2"]
    ) as started:
        yield started
        assert "Traceback" not in started.coordinator.log, started.coordinator.log


@pytest.fixture
def client(service: Service) -> Iterator[httpx.Client]:
    """A client of the service."""
    with httpx.Client(base_url=service.url, timeout=30) as client:
        yield client


def update(client: httpx.Client, folder: Path, *versions: str) -> None:
    """For each version, pause with frozen replies, load weights, resume."""
    for version in versions:
        directory = folder / version
        directory.mkdir()
        assert client.post("/pause?mode=keep&clear_cache=false").status_code == 200
        assert client.post("/update_weights", json={"weight_dir": str(directory)}).status_code == 200
        assert client.post("/resume").status_code == 200


def reply_during_updates(client: httpx.Client, folder: Path, versions: list[str], **fields: Any) -> dict[str, Any]:
    """Return the choice of a streamed reply during which weights are updated, with all of its ids."""
    ids: list[int] = []
    body = {**LONG, "stream": True, "return_token_ids": True, **fields}
    with client.stream("POST", CHAT, json=body) as response:
        assert response.status_code == 200
        updates: threading.Thread | None = None
        for line in response.iter_lines():
            if not line.startswith("data: {"):
                continue
            for choice in json.loads(line[6:])["choices"]:
                ids += choice.get("token_ids") or []
                if len(ids) > 3 and updates is None:
                    updates = threading.Thread(target=lambda: update(client, folder, *versions))
                    updates.start()
                if choice["finish_reason"]:
                    assert updates is not None
                    updates.join()
                    return {**choice, "ids": ids}
    raise AssertionError("the stream ended without a finish reason")


def test_what_falls_behind_ends_with_its_spans(client: httpx.Client, tmp_path: Path) -> None:
    """With no lag allowed, a running reply ends at an update: abort, with the tokens so far, all of one version."""
    choice = reply_during_updates(client, tmp_path, ["step_1"], max_weight_lag=0)

    assert choice["finish_reason"] == "abort"
    (span,) = choice["weight_versions"]
    assert (span["start"], span["end"]) == (0, len(choice["ids"]))
    assert 3 < span["end"] < 600
    assert span["version"] != "step_1"
    metrics = client.get("/metrics").text
    assert 'tokenwire_stale_sequences_total{model="sim"} 1.0' in metrics


def test_what_is_within_the_limit_goes_on(client: httpx.Client, tmp_path: Path) -> None:
    """One version of lag is allowed: the reply goes on over one update, and ends at the second."""
    whole = reply_during_updates(client, tmp_path, ["step_2"], max_weight_lag=1)
    ended = reply_during_updates(client, tmp_path, ["step_3", "step_4"], max_weight_lag=1)

    assert whole["finish_reason"] == "length"
    assert len(whole["ids"]) == 600
    assert [span["version"] for span in whole["weight_versions"]][-1] == "step_2"
    assert ended["finish_reason"] == "abort"
    assert "step_4" not in [span["version"] for span in ended["weight_versions"]]


def test_a_request_waits_for_its_version(service: Service, client: httpx.Client, tmp_path: Path) -> None:
    """A version that does not exist yet is waited for, by a client of OpenAI's SDK; others are not held up."""
    sdk = OpenAI(base_url=f"{service.url}/v1", api_key="none", max_retries=0)
    replies: list[Any] = []

    def ask() -> None:
        replies.append(
            sdk.chat.completions.create(
                model="sim",
                messages=[{"role": "user", "content": "Hi"}],
                max_tokens=4,
                extra_body={"min_weight_version": "awaited", "return_token_ids": True},
            )
        )

    waiting = threading.Thread(target=ask)
    waiting.start()
    wait_queued(service.url, 1)
    other = client.post(CHAT, json={**LONG, "max_tokens": 2})
    assert other.status_code == 200
    assert not replies
    update(client, tmp_path, "awaited")
    waiting.join()

    (span,) = replies[0].choices[0].model_dump()["weight_versions"]
    assert span["version"] == "awaited"


def test_a_version_that_never_comes_is_an_error(client: httpx.Client) -> None:
    """After the queue's time the error says which weights there are."""
    reply = client.post(CHAT, json={**LONG, "min_weight_version": "never"})

    assert reply.status_code == 503
    assert "'never'" in reply.json()["error"]["message"]


PROMPTS = {
    CHAT: {"messages": LONG["messages"], "max_tokens": 4},
    "/v1/completions": {"prompt": "Hi", "max_tokens": 4},
    "/v1/responses": {"input": "Hi", "max_output_tokens": 4},
    "/v1/messages": {"messages": LONG["messages"], "max_tokens": 4},
    "/inference/v1/generate": {"token_ids": [1, 2], "sampling_params": {"max_tokens": 4}},
    "/v1/chat/completions/tokens": {"messages": LONG["messages"], "tokens": [1, 2], "max_tokens": 4},
    "/generate": {"text": "Hi", "sampling_params": {"max_new_tokens": 4}},
    "/generate/": {"prompts": ["Hi"]},
}


@pytest.mark.parametrize("path", PROMPTS)
@pytest.mark.parametrize("value", [-1, 1.5, "two", True])
def test_a_bad_limit_is_named(client: httpx.Client, path: str, value: Any) -> None:
    """Every route that generates has the field, and names it."""
    reply = client.post(path, json={"model": "sim", **PROMPTS[path], "max_weight_lag": value})

    assert reply.status_code == 400, reply.text
    assert "max_weight_lag" in reply.text, reply.text


@pytest.mark.parametrize("path", PROMPTS)
def test_every_route_serves_a_request_within_its_limit(client: httpx.Client, path: str) -> None:
    """What is new enough is answered as without a limit."""
    reply = client.post(path, json={"model": "sim", **PROMPTS[path], "max_weight_lag": 0})

    assert reply.status_code == 200, reply.text


@pytest.mark.parametrize(
    ("headers", "fields", "status"),
    [
        ({"X-Max-Weight-Lag": "0"}, {}, 200),
        ({"X-Max-Weight-Lag": "-1"}, {}, 400),
        ({"X-Max-Weight-Lag": "1" * 30}, {}, 400),
        ({}, {"vllm_xargs": {"max_weight_lag": 0}}, 200),
        ({}, {"vllm_xargs": {"max_weight_lag": "0"}}, 400),
    ],
)
def test_headers_and_extra_arguments(
    client: httpx.Client, headers: dict[str, str], fields: dict[str, Any], status: int
) -> None:
    """A session sets its limit by a header, a client of vLLM in vllm_xargs."""
    assert client.post(CHAT, json={**LONG, "max_tokens": 2, **fields}, headers=headers).status_code == status


def test_a_coordinator_that_follows_nothing_refuses_limits(tmp_path: Path) -> None:
    """Where updates are not followed, a limit could not be kept: a 400 says how to follow them."""
    with simulated_service(tmp_path, workers=1) as service, httpx.Client(base_url=service.url, timeout=30) as client:
        reply = client.post(CHAT, json={**LONG, "max_tokens": 2, "max_weight_lag": 3})

    assert reply.status_code == 400
    assert reply.json()["error"]["param"] == "max_weight_lag"
