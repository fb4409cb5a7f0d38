"""Sends requests to a server concurrently and reads the responses."""

import asyncio
from types import TracebackType

import httpx

from tests.conformance.parity.request import Reply, Request

_TIMEOUT_S = 300.0


class ParityClient:
    """A client of one server."""

    def __init__(self, url: str, at_a_time: int) -> None:
        limits = httpx.Limits(max_connections=at_a_time, max_keepalive_connections=at_a_time)
        self._http = httpx.AsyncClient(base_url=url, timeout=httpx.Timeout(_TIMEOUT_S), limits=limits, trust_env=False)

    async def __aenter__(self) -> "ParityClient":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._http.aclose()

    async def send(self, request: Request) -> Reply:
        """Send a request; retry only if an idle connection was closed."""
        headers = {"content-type": "application/json", **request.headers}
        for attempt in range(3):
            try:
                response = await self._http.post(request.path, content=request.content(), headers=headers)
            except (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError):
                if attempt == 2:
                    raise
                await asyncio.sleep(0.2)
            else:
                return Reply(response.status_code, response.headers.get("content-type", ""), response.text)
        raise AssertionError("unreachable")
