"""Greedy completions by token ids, and the admin operations that happen while they run."""

import json
import threading
import time
import uuid
from dataclasses import dataclass, field
from typing import Any

import httpx

_TIMEOUT_S = 60.0


@dataclass(slots=True)
class GreedyReply:
    """A completion as far as it has come."""

    token_ids: list[int] = field(default_factory=list)
    finish_reason: str | None = None
    weight_versions: list[dict[str, Any]] | None = None
    first_s: float = 0.0
    """From the request to its first token."""
    seconds: float = 0.0


class GreedyStream:
    """A streamed greedy completion of fixed length, read by a thread."""

    def __init__(self, url: str, model: str, prompt: str, tokens: int, **fields: Any) -> None:
        self.reply = GreedyReply()
        self._error: BaseException | None = None
        self._news = threading.Condition()
        body = {**_greedy(model, prompt, tokens), "stream": True, **fields}
        self._thread = threading.Thread(target=self._run, args=(url, body), daemon=True)
        self._thread.start()

    def wait_tokens(self, count: int, timeout_s: float = _TIMEOUT_S) -> bool:
        """Return whether as many tokens came in time."""
        with self._news:
            self._news.wait_for(lambda: len(self.reply.token_ids) >= count or self._error, timeout_s)
        return len(self.reply.token_ids) >= count

    def result(self, timeout_s: float = _TIMEOUT_S) -> GreedyReply:
        """Wait for the end. Raises what broke the stream."""
        self._thread.join(timeout_s)
        if self._error is not None:
            raise self._error
        if self._thread.is_alive():
            raise TimeoutError(f"the stream stands at {len(self.reply.token_ids)} tokens after {timeout_s:.0f} s")
        return self.reply

    def _run(self, url: str, body: dict[str, Any]) -> None:
        try:
            self._read(url, body)
        except BaseException as error:
            self._error = error
        with self._news:
            self._news.notify_all()

    def _read(self, url: str, body: dict[str, Any]) -> None:
        started = time.monotonic()
        with httpx.stream("POST", f"{url}/v1/completions", json=body, timeout=_TIMEOUT_S) as response:
            if response.status_code != 200:
                raise RuntimeError(f"{response.status_code}: {response.read().decode()}")
            for line in response.iter_lines():
                if line.startswith("data: {"):
                    self._take(json.loads(line.removeprefix("data: ")), time.monotonic() - started)

    def _take(self, event: dict[str, Any], seconds: float) -> None:
        if "error" in event:
            raise RuntimeError(str(event["error"]))
        reply = self.reply
        for choice in event["choices"]:
            with self._news:
                if choice.get("token_ids") and not reply.token_ids:
                    reply.first_s = round(seconds, 4)
                reply.token_ids += choice.get("token_ids") or ()
                reply.seconds = round(seconds, 4)
                reply.finish_reason = choice.get("finish_reason") or reply.finish_reason
                reply.weight_versions = choice.get("weight_versions") or reply.weight_versions
                self._news.notify_all()


def greedy(url: str, model: str, prompt: str, tokens: int, **fields: Any) -> GreedyReply:
    """Return a greedy completion whose prompt is computed anew: no other request shares its prefix cache."""
    return GreedyStream(url, model, prompt, tokens, **{"cache_salt": uuid.uuid4().hex, **fields}).result()


def full_completion(url: str, model: str, prompt: str, tokens: int, **fields: Any) -> dict[str, Any]:
    """Return the full response to the same request, not streamed."""
    return post(url, "/v1/completions", {**_greedy(model, prompt, tokens), **fields})


def _greedy(model: str, prompt: str, tokens: int) -> dict[str, Any]:
    sampling = {"temperature": 0, "max_tokens": tokens, "ignore_eos": True, "return_token_ids": True}
    return {"model": model, "prompt": prompt, **sampling}


def post(url: str, path: str, body: dict[str, Any] | None = None, timeout_s: float = _TIMEOUT_S) -> dict[str, Any]:
    """Send a request, of an operation for example. Raises Refused for any status but 200."""
    response = httpx.post(f"{url}{path}", json={} if body is None else body, timeout=timeout_s)
    if response.status_code != 200:
        raise Refused(path, response.status_code, response.text)
    return dict(response.json())


def refusal(url: str, path: str, body: dict[str, Any]) -> "Refused":
    """Return the error of a request that is to be refused. Raises AssertionError if it is not."""
    try:
        response = post(url, path, body)
    except Refused as refused:
        return refused
    raise AssertionError(f"{path} was not refused, but returned {response}")


class Refused(Exception):
    """A request was answered with an error."""

    def __init__(self, path: str, status: int, text: str) -> None:
        super().__init__(f"{path} returned {status}: {text}")
        self.status = status
