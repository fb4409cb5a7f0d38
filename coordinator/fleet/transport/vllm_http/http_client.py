"""The HTTP client of a plain vLLM server: requests, streams and errors."""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from tokenwire.coordinator.fleet.transport.vllm_http.json_stream import LongParts, read_json
from tokenwire.coordinator.fleet.transport.vllm_http.media_body import MediaPart, body_with_media
from tokenwire.coordinator.fleet.transport.vllm_http.response import error_message
from tokenwire.errors import EngineFailed, InvalidRequest, NotFound, Overloaded, TokenwireError, Unavailable, WorkerLost

if TYPE_CHECKING:
    import aiohttp

_Body = Mapping[str, Any] | Sequence[bytes]
"""An object, or its JSON in pieces, without the brace at the end."""
_HeaderValues = Mapping[str, str]
_JSON = {"Content-Type": "application/json"}
_CONNECT_S = 5.0
_TIMEOUT_S = 5.0
_SMALL_BYTES = 64 * 1024
"""Of a body that is written or read at once."""


class VllmHttpClient:
    """A client of one server. Methods raise the server's error, or WorkerLost without a response."""

    def __init__(self, url: str, key: str | None) -> None:
        import aiohttp  # imported only if needed: it takes a fifth of a second

        self._url = url
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S),
            headers={"Authorization": f"Bearer {key}"} if key else {},
        )

    async def get(self, path: str) -> Any:
        """Get JSON; None for an empty body."""
        async with self._request("GET", path, timeout_s=_TIMEOUT_S) as response:
            body = await response.read()
            return json.loads(body) if body else None

    async def text(self, path: str, timeout_s: float) -> str:
        """Get text."""
        async with self._request("GET", path, timeout_s=timeout_s) as response:
            return await response.text()

    async def post(
        self, path: str, body: _Body, headers: _HeaderValues | None = None, parts: Sequence[MediaPart] = ()
    ) -> Any:
        """Post JSON, with media, and return the JSON response, without a timeout."""
        content = await self.content(path, body, headers, parts)
        return json.loads(content) if content else None

    async def post_long(
        self, path: str, body: _Body, headers: _HeaderValues, long: LongParts, parts: Sequence[MediaPart] = ()
    ) -> Any:
        """Post JSON, with media, and return the JSON response but for the `long` parts, without a timeout."""
        async with self._request("POST", path, body, headers, parts) as response:
            return await read_json(response.content.iter_chunked(_SMALL_BYTES), long)

    async def content(
        self, path: str, body: _Body, headers: _HeaderValues | None = None, parts: Sequence[MediaPart] = ()
    ) -> bytes:
        """Post JSON, with media, and return the response as it is, without a timeout."""
        async with self._request("POST", path, body, headers, parts) as response:
            return await response.read()

    async def stream(
        self, path: str, body: _Body, headers: _HeaderValues, parts: Sequence[MediaPart] = ()
    ) -> AsyncGenerator[dict[str, Any], None]:
        """Post JSON, with media, and yield the events of the response to its end.

        Raises the error of an error event.
        """
        async with self._request("POST", path, body, headers, parts) as response:
            rest, done = b"", False
            async for piece in response.content.iter_any():
                *events, rest = (rest + piece).split(b"\n\n")
                for event in events:
                    data = event.removeprefix(b"data: ")
                    if data == b"[DONE]":
                        done = True  # read on to the end of the body, so that the connection can be reused
                        continue
                    value = json.loads(data)
                    if "error" in value:
                        raise _error(int(value["error"].get("code") or 500), data.decode())
                    yield value
        if not done:
            raise WorkerLost("the stream ended early")

    async def close(self) -> None:
        """Close all connections: the server aborts their requests."""
        await self._session.close()

    @asynccontextmanager
    async def _request(
        self,
        method: str,
        path: str,
        body: _Body | None = None,
        headers: _HeaderValues | None = None,
        parts: Sequence[MediaPart] = (),
        timeout_s: float | None = None,
    ) -> AsyncIterator["aiohttp.ClientResponse"]:
        import aiohttp

        if self._session.closed:
            raise WorkerLost("the session has ended")
        timeout = aiohttp.ClientTimeout(total=timeout_s, sock_connect=_CONNECT_S)
        data, given = None, dict(headers or {})
        if body is not None:
            data, of_body = _written(body, parts)
            given.update(of_body)
        try:
            async with self._session.request(
                method, self._url + path, data=data, headers=given, timeout=timeout, allow_redirects=False
            ) as response:
                if response.status != 200:
                    raise _error(response.status, await response.text())
                yield response
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise WorkerLost(str(error) or type(error).__name__) from error
        except ValueError as error:
            raise EngineFailed(f"The server's response is not JSON: {error}") from error


def _written(body: _Body, parts: Sequence[MediaPart]) -> tuple[bytes | AsyncIterator[bytes], _HeaderValues]:
    """Return a body as it is sent, with the headers that describe it: a long one a piece at a time."""
    head = [json.dumps(body)[:-1].encode()] if isinstance(body, Mapping) else body
    if parts:
        return body_with_media(head, parts), _JSON
    size = sum(map(len, head)) + 1
    if size <= _SMALL_BYTES:
        return b"".join((*head, b"}")), _JSON
    return _each((*head, b"}")), {**_JSON, "Content-Length": str(size)}


async def _each(pieces: Iterable[bytes]) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


def _error(status: int, body: str) -> TokenwireError:
    message = error_message(body)
    if status == 429:
        return Overloaded(message)
    if status in (502, 503, 504):
        return Unavailable(message)
    if status == 404:
        return NotFound(message)
    if status in (401, 403):
        return Unavailable(f"the server responded with {status}: {message}")
    return InvalidRequest(message) if status < 500 else EngineFailed(message)
