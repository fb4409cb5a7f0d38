"""The response of `/metrics`, of which clients that do not read keep few texts in memory, whoever they are."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tokenwire.coordinator.api.api_request import context_of
from tokenwire.coordinator.api.as_read import byte_parts, send_as_read
from tokenwire.coordinator.http.connection import Connection

_MOST_UNREAD = 8
"""Texts that may be unread at a time."""
_SHARED_S = 1.0
"""For how long the newest text is sent to more clients, while as many are unread."""


@dataclass(eq=False, slots=True)
class Page:
    """One text, and who has not read all of it."""

    text: bytes
    made_at: float
    readers: set[Connection] = field(default_factory=set)


class MetricsPages:
    """The texts that are being sent; beyond their number, readers of the oldest one are cut."""

    def __init__(self, make: Callable[[], Awaitable[bytes]], clock: Callable[[], float]) -> None:
        self._make = make
        self._clock = clock
        self._unread: list[Page] = []
        """The oldest first."""
        self._turn = asyncio.Lock()
        self._begun = 0
        self._newest: tuple[int, Page] | None = None
        """With its number among those begun."""

    async def current(self) -> Page:
        """Return a page that is made from now on, for all who ask at a time, or just was while too many are unread."""
        begun = self._begun
        async with self._turn:
            if self._newest is not None and self._newest[0] > begun:
                return self._newest[1]
            self._unread = [page for page in self._unread if page.readers]
            if len(self._unread) >= _MOST_UNREAD:
                if self._clock() < self._unread[-1].made_at + _SHARED_S:
                    return self._unread[-1]
                for reader in list(self._unread.pop(0).readers):
                    reader.cut()
            self._begun += 1
            self._newest = self._begun, Page(await self._make(), self._clock())
            return self._newest[1]

    def read(self, page: Page, reader: Connection) -> None:
        """Count a page as unread by a client."""
        page.readers.add(reader)
        if page not in self._unread:
            self._unread.append(page)


class PageResponse(Response):
    """Sends a page in parts, as its client reads it."""

    def __init__(self, pages: MetricsPages, page: Page, media_type: str) -> None:
        self.status_code, self.background, self.media_type = 200, None, media_type
        self.init_headers({"content-length": str(len(page.text))})
        self._pages, self._page = pages, page

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it; a client that left, or was cut, gets no more."""
        context = context_of(scope)
        connection, page = context.connection, self._page
        self._pages.read(page, connection)
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            await send_as_read(send, self._parts(connection))
        finally:
            page.readers.discard(connection)
        context.record_client()

    async def _parts(self, connection: Connection) -> AsyncIterator[bytes]:
        for part in byte_parts(self._page.text):
            if connection.was_cut:
                await asyncio.sleep(0)  # the server learns of it: it expects nothing more
            if connection.lost or connection.was_cut:
                return
            yield part
