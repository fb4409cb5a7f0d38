"""API keys with real processes: authentication, permissions and timeouts."""

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import AuthenticationError, BadRequestError, OpenAI, PermissionDeniedError, RateLimitError

from tests.lazily import Lazily
from tests.ports import free_port
from tests.processes import Service, coordinator, simulated_service
from tests.redis_server import redis_server

anthropic = Lazily("anthropic")

KEYS: list[dict[str, Any]] = [
    {"tenant": "search", "key": "search-secret"},
    {"tenant": "stranger", "key": "stranger-secret"},
    {"tenant": "metered", "key": "metered-secret", "tokens_per_minute": 10_000},
    {"tenant": "elsewhere", "key": "elsewhere-secret", "models": ["another"]},
]
BODY: dict[str, Any] = {"model": "simulated", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 5}
CHAT = "/v1/chat/completions"
BEARER = {"Authorization": "Bearer search-secret"}


@dataclass
class Guarded:
    """A service that requires keys."""

    service: Service
    keys: Path

    def client(self, key: str) -> OpenAI:
        """Return OpenAI's client with a key."""
        return OpenAI(base_url=f"{self.service.url}/v1", api_key=key, max_retries=0)

    def post(self, headers: dict[str, str] | None = None, path: str = CHAT, **fields: Any) -> httpx.Response:
        """Send a request."""
        return httpx.post(self.service.url + path, json={**BODY, **fields}, headers=headers, timeout=30)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """A service with keys, and admin routes with an admin key."""
    folder = tmp_path_factory.mktemp("guarded")
    (keys := folder / "keys.json").write_text(json.dumps(KEYS))
    (admin := folder / "admin").write_text("admin-secret")
    options = ["--api-keys-file", str(keys), "--admin-key-file", str(admin), "--enable-rl"]
    with simulated_service(folder, "--sim-step-ms", "2", coordinator_options=options) as service:
        yield Guarded(service, keys)
        assert "-secret" not in service.coordinator.log


def test_clients_send_their_keys(guarded: Guarded) -> None:
    """OpenAI's client with a key, Anthropic's with its own header; a wrong key is its AuthenticationError."""
    assert guarded.client("search-secret").chat.completions.create(**BODY).usage
    claude = anthropic.Anthropic(base_url=guarded.service.url, api_key="search-secret", max_retries=0)
    assert claude.messages.create(**BODY).usage.output_tokens == 5

    with pytest.raises(AuthenticationError):
        guarded.client("wrong").chat.completions.create(**BODY)
    assert guarded.post().status_code == 401
    assert httpx.get(f"{guarded.service.url}/v1/models").status_code == 401
    assert httpx.get(f"{guarded.service.url}/version").status_code == 200


def test_admin_routes_have_their_own_key(guarded: Guarded) -> None:
    """An API key does not authorize them, and the admin key does not authorize generation."""
    admin = {"Authorization": "Bearer admin-secret"}

    assert guarded.post(path="/pause").status_code == 401
    assert guarded.post(BEARER, path="/pause").status_code == 401
    assert guarded.post(admin).status_code == 401
    assert guarded.post(admin, path="/reset_prefix_cache").status_code == 200
    assert guarded.post(admin, path="/abort_requests").status_code == 401
    assert guarded.post({**admin, "x-api-key": "search-secret"}, path="/abort_requests").status_code == 200


def test_a_key_may_be_for_some_models(guarded: Guarded) -> None:
    """Others are a 403, streamed or not."""
    for stream in (False, True):
        with pytest.raises(PermissionDeniedError, match="may not use the model `simulated`"):
            guarded.client("elsewhere-secret").chat.completions.create(**BODY, stream=stream)


def test_tokens_are_reserved_and_given_back(guarded: Guarded) -> None:
    """A reply in progress holds what it may use; what it did not use is there again when its client leaves."""
    client = guarded.client("metered-secret")
    with client.chat.completions.with_streaming_response.create(**{**BODY, "max_tokens": 9000}, stream=True) as running:
        assert running.headers["x-ratelimit-limit-tokens"] == "10000"
        assert int(running.headers["x-ratelimit-remaining-tokens"]) < 5000
        with pytest.raises(RateLimitError, match=r"The request may use 90[0-9]{2}, and [0-9]+ are left") as caught:
            client.chat.completions.create(**{**BODY, "max_tokens": 9000})
        assert int(caught.value.response.headers["retry-after"]) >= 1
        assert guarded.post(BEARER).status_code == 200
    guarded.service.wait_slots(0)

    answer = client.chat.completions.with_raw_response.create(**BODY)
    assert int(answer.headers["x-ratelimit-remaining-tokens"]) > 5000


def test_a_request_for_more_than_a_minutes_tokens_is_invalid(guarded: Guarded) -> None:
    """However often it were tried again."""
    too_much = {**BODY, "max_tokens": 1000, "temperature": 1.0}
    with pytest.raises(BadRequestError, match="has 10000 tokens per minute, and the request may use up to 1000"):
        guarded.client("metered-secret").chat.completions.create(**too_much, n=100)


@pytest.mark.npm
def test_coordinators_share_limits_by_redis(guarded: Guarded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Together they let in what the key has; without the store each lets in as much, and counts the failure."""
    monkeypatch.setenv("TOKENWIRE_LIMITS_STORE_PASSWORD", "between us")
    (keys := tmp_path / "keys").write_text(
        json.dumps([{"key": key, "requests_per_minute": 2} for key in ("shared", "first")])
    )
    port = free_port()
    options = ("--api-keys-file", str(keys), "--limits-store", f"redis://127.0.0.1:{port}")
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir()

    def post(url: str, key: str = "shared") -> int:
        return httpx.post(url + CHAT, json=BODY, headers={"x-api-key": key}, timeout=30).status_code

    workers = guarded.service.addresses
    with ExitStack() as stack:
        (one, first), (other, second) = (
            stack.enter_context(coordinator(folder, workers, *options)) for folder in folders
        )
        with redis_server(port, "between us"):
            assert [post(url, "first") for url in (first, second)] == [200, 200]  # connects
            assert [post(url) for url in (first, second, first, second)] == [200, 200, 429, 429]
        assert [post(url) for url in (first, second)] == [200, 200]
        metrics = httpx.get(f"{first}/metrics").text
        assert re.search(r"tokenwire_limits_store_failures_total [1-9]", metrics)
        assert "limiting API keys in each process by itself" in one.log
        assert "between us" not in one.log + other.log


def test_keys_change_without_a_restart(guarded: Guarded) -> None:
    """An added key is accepted at once, and a removed one is not."""
    guarded.keys.write_text(json.dumps([*KEYS, {"key": "new-secret"}]))
    assert guarded.post({"x-api-key": "new-secret"}).status_code == 200

    guarded.keys.write_text(json.dumps(KEYS))
    assert guarded.post({"x-api-key": "new-secret"}).status_code == 401


def test_tenants_do_not_share_histories(guarded: Guarded) -> None:
    """The same conversation, continued by another tenant, is not found."""
    exact = {"token_history": "exact"}
    reply = guarded.post(BEARER, **exact).json()["choices"][0]["message"]
    follow = [*BODY["messages"], {"role": "assistant", "content": reply["content"]}, {"role": "user", "content": "?"}]

    own = guarded.post(BEARER, **exact, messages=follow).json()
    other = guarded.post({"x-api-key": "stranger-secret"}, **exact, messages=follow).json()

    assert own["token_history"]["reused_tokens"] > 0
    assert other["token_history"]["reused_tokens"] == 0


@pytest.mark.parametrize("stream", [False, True])
def test_a_request_has_its_clients_timeout(guarded: Guarded, stream: bool) -> None:
    """After X-Request-Timeout: a 504, or an error event after the output so far; and the engine is free."""
    answer = guarded.post({**BEARER, "X-Request-Timeout": "0.3"}, max_tokens=20_000, stream=stream)

    guarded.service.wait_slots(0)
    assert answer.status_code == (200 if stream else 504)
    assert "timed out after 0.3 s" in answer.text


def test_an_invalid_timeout_is_rejected(guarded: Guarded) -> None:
    """The message names the header."""
    answer = guarded.post({**BEARER, "X-Request-Timeout": "soon"})

    assert answer.status_code == 400
    assert "X-Request-Timeout must be a positive number" in answer.text
