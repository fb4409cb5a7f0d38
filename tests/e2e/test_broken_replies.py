"""Failing replies of the Responses and Messages APIs: before the first token a status, after it an event."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import OpenAI

from tests.lazily import Lazily
from tests.processes import simulated_service

anthropic = Lazily("anthropic")

MESSAGES: list[Any] = [{"role": "user", "content": "Hi"}]
BODIES: dict[str, dict[str, Any]] = {
    "/v1/responses": {"input": "Hi"},
    "/v1/messages": {"model": "sim", "messages": MESSAGES, "max_tokens": 500},
}
FAULTS = [argument for request in (1, 2) for argument in ("--sim-fault", f"error@request={request}:after=8")]


def test_a_failing_stream_has_an_error(folder: Path) -> None:
    """Clients get the output so far, and then their API's own kind of failure."""
    with simulated_service(folder, *FAULTS, "--served-model-name", "sim") as service:
        with OpenAI(base_url=f"{service.url}/v1", api_key="unused", max_retries=0) as openai:
            events = list(openai.responses.create(model="sim", input="Hi", stream=True))
        with anthropic.Anthropic(base_url=service.url, api_key="unused", max_retries=0) as claude:
            stream = claude.messages.create(model="sim", messages=MESSAGES, max_tokens=500, stream=True)
            seen: list[str] = []
            with pytest.raises(anthropic.APIStatusError) as raised:
                seen.extend(event.type for event in stream)

    last: Any = events[-1]
    assert last.type == "response.failed"
    assert last.response.status == "failed"
    assert last.response.error.code == "server_error"
    assert any(event.type == "response.output_text.delta" for event in events)
    assert seen[0] == "message_start"
    assert isinstance(raised.value.body, dict)
    assert raised.value.body["error"]["type"] == "api_error"


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a service whose only slot and whose queue of one are taken."""
    options = ("--served-model-name", "sim", "--sim-max-num-seqs", "1", "--sim-max-queue", "1")
    with simulated_service(tmp_path_factory.mktemp("busy"), *options) as service:
        body = {"messages": MESSAGES, "n": 2, "stream": True}
        with httpx.stream("POST", f"{service.url}/v1/chat/completions", json=body) as response:
            lines = response.iter_lines()  # kept: without it the client would leave
            next(lines)
            yield service.url


@pytest.mark.parametrize(("path", "kind"), [("/v1/responses", "RateLimitError"), ("/v1/messages", "rate_limit_error")])
@pytest.mark.parametrize("stream", [False, True])
def test_a_full_queue_is_a_status(busy: str, path: str, kind: str, stream: bool) -> None:
    """A worker's rejection precedes any token, so it is a 429 in the API's format, streamed or not."""
    answer = httpx.post(busy + path, json={**BODIES[path], "stream": stream})

    assert answer.status_code == 429
    assert answer.headers["retry-after"]
    assert answer.json()["error"]["type"] == kind
