"""Clients that read streams, or replies that come at once, and record arrival times."""

import asyncio
import contextlib
import json
import time
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import httpx

from benchmarks.load import http_request
from tests.chunked import unchunk

_ROUTES = {"messages": "/v1/chat/completions", "input": "/v1/embeddings"}
"""By a field that only their requests have."""


@dataclass(slots=True)
class ClientRecord:
    """The record of one client."""

    body: dict[str, Any]
    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    finish_reason: str | None = None
    usage: dict[str, Any] | None = None
    created: int = 0
    """The server's time of day, in seconds since 1970."""
    problem: str = ""
    """What went wrong; empty: nothing."""
    arrivals: list[float] = field(default_factory=list)
    began: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the first data has come."""

    @property
    def path(self) -> str:
        """The route that the body is for."""
        return next((path for name, path in _ROUTES.items() if name in self.body), "/v1/completions")

    @property
    def longest_gap_s(self) -> float:
        """The longest time between two arrivals."""
        pairs = zip(self.arrivals, self.arrivals[1:], strict=False)
        return max((later - earlier for earlier, later in pairs), default=0.0)

    @property
    def output(self) -> tuple[str, list[int], str | None, dict[str, Any] | None]:
        """Everything that must equal an uninterrupted run."""
        return self.text, self.token_ids, self.finish_reason, self.usage


async def read_stream(url: str, stream: ClientRecord) -> ClientRecord:
    """Send a request and read its stream to the end, or its reply. Never raises: errors are recorded in the stream."""
    if not stream.body.get("stream"):
        return await _read_reply(url, stream)
    parts = urlsplit(url)
    data = bytearray()
    writer = None
    try:
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port, limit=1 << 24)
        writer.write(http_request(url, stream.path, stream.body))
        while not data.endswith(b"0\r\n\r\n") and (piece := await reader.read(65536)):
            data += piece
            if b"data: " in piece:
                stream.arrivals.append(time.monotonic())
                stream.began.set()
    except OSError as error:
        stream.problem = f"connection: {error}"
    finally:
        if writer is not None:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
    _parse(bytes(data), stream)
    stream.began.set()
    return stream


async def _read_reply(url: str, record: ClientRecord) -> ClientRecord:
    """Take the vectors of a pooling request."""
    async with httpx.AsyncClient(timeout=None) as client:  # noqa: S113 (the budget is judged afterwards)
        try:
            response = await client.post(url + record.path, json=record.body)
        except httpx.HTTPError as error:
            record.problem = f"connection: {error}"
        else:
            record.arrivals.append(time.monotonic())
            if response.status_code == 200:
                reply = response.json()
                record.text, record.usage = " ".join(each["embedding"] for each in reply["data"]), reply["usage"]
            else:
                record.problem = f"{response.status_code} {response.text[:300]}"
    record.began.set()
    return record


def _parse(data: bytes, stream: ClientRecord) -> None:
    head, _, chunked = data.partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200"):
        stream.problem = stream.problem or head[:40].decode(errors="replace") + " " + chunked[:300].decode("utf-8")
        return
    lines = unchunk(chunked)[0].decode().split("\n\n")
    events = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
    for event in events:
        if event != "[DONE]":
            _take(json.loads(event), stream)
    if not events or events[-1] != "[DONE]":
        stream.problem = stream.problem or "the stream broke off"


def _take(event: dict[str, Any], stream: ClientRecord) -> None:
    if "error" in event:
        stream.problem = json.dumps(event["error"])
        return
    stream.created = event["created"]
    for choice in event.get("choices", ()):
        stream.text += choice["delta"].get("content") or "" if "delta" in choice else choice["text"]
        stream.token_ids += choice.get("token_ids") or []
        stream.finish_reason = choice["finish_reason"] or stream.finish_reason
    stream.usage = event.get("usage") or stream.usage
