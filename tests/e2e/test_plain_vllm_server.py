"""vLLM's own server as a worker: what it answers by itself and through a coordinator is the same."""

import re
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.conformance.servers import VllmServer
from tests.processes import coordinator
from tokenwire.process.shared_options import default_cache_dir
from tokenwire.worker.vllm_engine.embedded_model import EMBEDDED_MODEL_NAME, prepare_embedded_model

pytestmark = [pytest.mark.engine, pytest.mark.long, pytest.mark.timeout(600)]

CHAT = "/v1/chat/completions"
QUESTION: dict[str, Any] = {
    "model": EMBEDDED_MODEL_NAME,
    "messages": [{"role": "user", "content": "Name three colors."}],
    "temperature": 0,
    "max_tokens": 24,
}


class Stock:
    """A coordinator in front of a plain vLLM server."""

    def __init__(self, url: str, server: VllmServer) -> None:
        self.url = url
        self.server = server

    def both(self, body: dict[str, Any], path: str = CHAT) -> list[dict[str, Any]]:
        """Send a request to the server itself and through the coordinator; return the responses."""
        answers = [httpx.post(url + path, json=body, timeout=120) for url in (self.server.url, self.url)]
        assert [answer.status_code for answer in answers] == [200, 200], [answer.text for answer in answers]
        return [answer.json() for answer in answers]

    def metric(self, name: str) -> float:
        """Read one of the server's metrics."""
        text = httpx.get(f"{self.server.url}/metrics").text
        return sum(float(value) for value in re.findall(rf"^vllm:{name}{{.*}} (\S+)$", text, re.MULTILINE))

    def wait_running(self, count: int) -> None:
        """Wait until the engine computes a number of sequences."""
        deadline = time.monotonic() + 10
        while self.metric("num_requests_running") != count:
            assert time.monotonic() < deadline
            time.sleep(0.05)


@pytest.fixture(scope="module")
def stock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stock]:
    """Both, ready."""
    folder = tmp_path_factory.mktemp("stock")
    model = prepare_embedded_model(default_cache_dir(), lambda _: None)
    server = VllmServer(folder, ("--enable-scale-out", "--disable-uvicorn-access-log"))
    try:
        server.wait_ready()
        with coordinator(folder, [server.url], "--tokenizer", str(model), "--queue-timeout", "3") as (_, url):
            yield Stock(url, server)
    finally:
        server.stop()


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"logprobs": True, "top_logprobs": 3},
        {"stop": ["2."]},
        {"prompt_logprobs": 2},
        {"temperature": 0.9, "seed": 7, "logit_bias": {"28": -5}, "presence_penalty": 0.5},
        {"response_format": {"type": "json_object"}},
        {"stop_token_ids": [30], "min_tokens": 3},
    ],
    ids=lambda more: "-".join(more) or "greedy",
)
def test_answers_are_the_servers_own(stock: Stock, more: dict[str, Any]) -> None:
    """Ids, text, log-probabilities and endings are equal."""
    full_own, full_ours = stock.both({**QUESTION, **more, "return_token_ids": True})

    own, ours = full_own["choices"][0], full_ours["choices"][0]
    for field in ("token_ids", "finish_reason", "stop_reason"):
        assert ours[field] == own[field], field
    assert ours["message"]["content"] == own["message"]["content"]
    assert rounded(ours["logprobs"]) == rounded(own["logprobs"])
    assert rounded(full_ours["prompt_logprobs"]) == rounded(full_own["prompt_logprobs"])
    assert (own["logprobs"] is not None, full_own["prompt_logprobs"] is not None) == (
        "logprobs" in more,
        "prompt_logprobs" in more,
    )


def rounded(value: Any) -> Any:
    """Round all fractions: a batch of another size may differ in the last digits."""
    if isinstance(value, dict):
        return {key: rounded(each) for key, each in value.items()}
    if isinstance(value, list):
        return [rounded(each) for each in value]
    return round(value, 3) if isinstance(value, float) else value


def test_a_stop_string_ends_the_engine(stock: Stock) -> None:
    """The server gets no stop strings: its request is aborted when the coordinator finds one."""
    before = stock.metric("generation_tokens_total")
    body = {**QUESTION, "max_tokens": 1500, "ignore_eos": True, "stop": ["2."]}
    answer = httpx.post(stock.url + CHAT, json=body, timeout=120).json()

    stock.wait_running(0)
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert stock.metric("generation_tokens_total") - before < answer["usage"]["completion_tokens"] + 10


def test_a_client_that_leaves_ends_the_engine(stock: Stock) -> None:
    """After its first chunk, the server's request is aborted."""
    body = {**QUESTION, "max_tokens": 1500, "ignore_eos": True, "stream": True}
    with httpx.stream("POST", stock.url + CHAT, json=body, timeout=120) as response:
        lines = response.iter_lines()
        next(lines)
        stock.wait_running(1)

    stock.wait_running(0)


def test_a_bad_request_is_rejected_before_the_server(stock: Stock) -> None:
    """Limits are known from the model's directory and the server's list."""
    too_long = httpx.post(f"{stock.url}/v1/completions", json={"prompt": [1] * 5000, "max_tokens": 1})
    outside = httpx.post(f"{stock.url}/v1/completions", json={"prompt": [1_000_000], "max_tokens": 1})

    assert (too_long.status_code, outside.status_code) == (400, 400)
    assert "out of vocabulary" in outside.text
    scored = httpx.post(stock.url + CHAT, json={**QUESTION, "logprob_token_ids": [1], "logprobs": True})
    assert scored.status_code == 400
    assert re.search(r"No worker of .* supports logprob_token_ids, as .*vllm .* \(serve\)", scored.text)


def test_a_server_that_dies_is_noticed(stock: Stock) -> None:
    """Its streams end with an error, and nothing is served any more."""
    body = {**QUESTION, "max_tokens": 1500, "ignore_eos": True, "stream": True}
    with httpx.stream("POST", stock.url + CHAT, json=body, timeout=120) as response:
        lines = response.iter_lines()
        next(lines)
        stock.server.popen.kill()
        assert any('"error"' in line for line in lines)

    assert httpx.get(f"{stock.url}/health").status_code == 503
