"""Looks up the names of servers of pictures, in threads that one client cannot take from others.

A lookup cannot be stopped: its thread counts until the system's resolver returns, long after the fetch has ended.
"""

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from aiohttp.abc import AbstractResolver, ResolveResult

from tokenwire.process.fair_turns import FairTurns

LookUp = Callable[[str, int, int], list[tuple[Any, ...]]]
"""Returns what socket.getaddrinfo does for a name, a port and a family. Raises OSError."""

_share: ContextVar[str] = ContextVar("share", default="")


@contextmanager
def lookups_for(share: str) -> Iterator[None]:
    """Look up names in the turns of a share, meanwhile."""
    token = _share.set(share)
    try:
        yield
    finally:
        _share.reset(token)


def look_up(host: str, port: int, family: int) -> list[tuple[Any, ...]]:
    """Ask the system's resolver."""
    return socket.getaddrinfo(host, port, family, socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)


class ThreadedLookups(AbstractResolver):
    """Looks up each name in a thread of its own, which does not keep the process from exiting."""

    def __init__(self, threads: int, share_threads: int, ask: LookUp = look_up) -> None:
        """`threads` is the most there may be, `share_threads` the most for each share."""
        self._turns = FairTurns(threads, share_threads)
        self._ask = ask

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Return the addresses of a name."""
        share = _share.get()
        await self._turns.begin(share)
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[list[tuple[Any, ...]]] = loop.create_future()

        def run() -> None:
            found: list[tuple[Any, ...]] | Exception
            try:
                found = self._ask(host, port, family)
            except Exception as error:
                found = error
            try:
                loop.call_soon_threadsafe(self._end, share, answer, found)
            except RuntimeError:
                return  # the event loop has ended, and with it whom this is for

        try:
            threading.Thread(target=run, name="tokenwire-lookup", daemon=True).start()
        except RuntimeError as error:  # the system has no more threads
            self._turns.end(share)
            raise OSError("no thread to look up a name") from error
        return [_result(host, *each) for each in await answer]

    def _end(self, share: str, answer: "asyncio.Future[Any]", found: list[tuple[Any, ...]] | Exception) -> None:
        self._turns.end(share)
        if answer.done():  # the fetch has ended
            return
        if isinstance(found, Exception):
            answer.set_exception(found)
        else:
            answer.set_result(found)

    async def close(self) -> None:
        """Nothing is open."""


def _result(
    name: str, family: int, kind: int, protocol: int, canonical: str, address: tuple[Any, ...]
) -> ResolveResult:
    """Return an address as aiohttp has it; one of a link says which, and so is not public."""
    host, port, *rest = address
    if len(rest) == 2 and rest[1]:
        host = f"{host}%{rest[1]}"
    flags = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
    return ResolveResult(hostname=name, host=host, port=port, family=family, proto=protocol, flags=flags)
