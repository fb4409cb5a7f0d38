"""Routing as clients see it."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.processes import Service, simulated_service, wait_routable

LONG = "Once upon a time there was a worker that remembered every word of a story. " * 10
CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": LONG}], "max_tokens": 3}
HEADER = re.compile(r'(\S+); cached=(\d+); ahead=(\d+); why="([^"]+)"')


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Two workers behind a coordinator with debug headers."""
    folder = tmp_path_factory.mktemp("routing")
    with simulated_service(
        folder, "--sim-step-ms", "1", workers=2, coordinator_options=("--enable-debug-headers",)
    ) as service:
        wait_routable(service.url, 2)
        yield service


def test_a_prompt_is_sent_to_the_worker_that_cached_its_prefix(service: Service) -> None:
    """Repeatedly, as the engine confirms; and the conversation's header names the worker."""
    with httpx.Client(base_url=service.url) as client:
        replies = [client.post("/v1/chat/completions", json=CHAT) for _ in range(4)]
        named = [
            client.post("/v1/chat/completions", json={**CHAT, "messages": [{"role": "user", "content": f"Hi {turn}"}]},
                        headers={"X-Session-ID": "one"})
            for turn in range(3)
        ]  # fmt: skip

    decisions = [HEADER.fullmatch(reply.headers["x-tokenwire-worker"]) for reply in replies]
    assert all(decisions)
    assert len({decision[1] for decision in decisions if decision}) == 1, decisions
    assert [decision[4] for decision in decisions if decision][1:] == ["holds a part of the prompt"] * 3
    prompt_tokens = replies[-1].json()["usage"]["prompt_tokens"]
    assert decisions[-1]
    assert prompt_tokens - 64 <= int(decisions[-1][2]) < prompt_tokens
    assert "had the conversation last" in named[1].headers["x-tokenwire-worker"]
    assert len({reply.headers["x-tokenwire-worker"].split(";")[0] for reply in named}) == 1


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", CHAT),
        ("/v1/chat/completions", {**CHAT, "stream": True}),
        ("/v1/completions", {"prompt": LONG, "max_tokens": 3}),
        ("/v1/completions", {"prompt": ["one", "two"], "max_tokens": 3, "stream": True}),
        ("/v1/responses", {"input": LONG, "max_output_tokens": 3, "store": False}),
        ("/v1/messages", {**CHAT, "model": "simulated", "stream": True}),
        ("/inference/v1/generate", {"token_ids": [1, 2, 3], "sampling_params": {"max_tokens": 3}}),
        ("/generate", {"input_ids": [1, 2, 3], "sampling_params": {"max_new_tokens": 3}}),
    ],
)
def test_every_generating_route_explains_the_choice(service: Service, path: str, body: dict[str, Any]) -> None:
    """Streamed or not, one part for each prompt."""
    with httpx.stream("POST", f"{service.url}{path}", json=body) as reply:
        reply.read()
        assert reply.status_code == 200, reply.text
    decisions = HEADER.findall(reply.headers["x-tokenwire-worker"])
    assert len(decisions) == (2 if isinstance(body.get("prompt"), list) else 1)
    assert {decision[0] for decision in decisions} <= set(service.addresses)


def test_workers_are_not_named_by_default(tmp_path: Path) -> None:
    """Addresses are private; round robin ignores caches."""
    options = ("--routing", "round-robin")
    with simulated_service(tmp_path, "--sim-step-ms", "1", workers=2, coordinator_options=options) as service:
        for _ in range(4):
            reply = httpx.post(f"{service.url}/v1/chat/completions", json=CHAT)
            assert "x-tokenwire-worker" not in reply.headers
        tokens = [service.server_info(number).generated_tokens for number in range(2)]
    assert tokens == [6, 6]
