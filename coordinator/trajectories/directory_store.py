"""Sessions in a directory, a file for each, which the processes of a host share and which outlives them."""

import asyncio
import contextlib
import errno
import hashlib
import heapq
import json
import logging
import math
import os
import struct
import time
import zlib
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from tokenwire.coordinator.trajectories.marks import SessionMarks
from tokenwire.coordinator.trajectories.session_limit import SessionLimit, StoredEvent
from tokenwire.coordinator.trajectories.store import FULL, MOST_LISTED, DropCounts, OnDropped, SessionKey, StoredSession
from tokenwire.coordinator.trajectories.write_queue import Append, WriteQueue, store_failed
from tokenwire.errors import InvalidRequest

log = logging.getLogger(__name__)

Argument = TypeVar("Argument")
Found = TypeVar("Found")

_SUFFIX = ".session"
_MAGIC = b"TWS1"
_FRAME = struct.Struct("<4sII")
"""Before each event: a mark by which readers find the next one after a part that was cut off, its length, its CRC."""
_HEAD_BYTES = 64 * 1024
"""More than the head of a file has."""
_SWEEP_S = 60.0
_COARSE_S = 2.0
"""By how much a file system's times may be behind the clock."""


class DirectoryTrajectoryStore:
    """Appends to files. Files that have not changed for the TTL are deleted, then the oldest of who has most."""

    def __init__(
        self,
        folder: Path,
        max_bytes: int,
        ttl_s: float,
        on_dropped: OnDropped,
        limit: SessionLimit | None = None,
    ) -> None:
        """Raises InvalidRequest if the folder cannot be written to."""
        self._limit = limit or SessionLimit()
        self._folder = folder
        self._max_bytes = max_bytes
        self._ttl_s = ttl_s
        self._marks = SessionMarks[bytes](on_dropped)
        """The frames of the heads of files, which have a checksum of when they began."""
        self._queue = WriteQueue(self._write, max_bytes, on_dropped)
        self._lists = asyncio.Lock()
        self._swept_at = -math.inf
        self._evicted = 0
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise InvalidRequest(f"--trajectories-store: cannot use {folder}: {error.strerror}") from error
        if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
            raise InvalidRequest(f"--trajectories-store: {folder} is not writable")

    @property
    def dropped(self) -> DropCounts:
        """What was dropped; files of sessions by this process."""
        return DropCounts(self._queue.dropped + self._limit.dropped, self._evicted)

    @property
    def most_session_bytes(self) -> float:
        """By the limit of sessions."""
        return self._limit.most_with_reserve

    def append(self, key: SessionKey, share: str, event: bytes) -> None:
        """Queue an event."""
        self._queue.put(key, event)

    async def put(self, key: SessionKey, share: str, event: bytes) -> None:
        """Write an event."""
        await self._queue.store(key, event)

    async def size_of(self, key: SessionKey) -> int:
        """Return the bytes of a session's file."""
        await self._queue.settle()
        return await self._in_thread(_size, self._path(key))

    async def read(self, key: SessionKey) -> Sequence[bytes]:
        """Return the events of a session."""
        await self._queue.settle()
        return [*(await self._in_thread(self._read, self._path(key)))][1:]

    async def delete(self, key: SessionKey) -> bool:
        """Delete a session."""
        await self._queue.settle()
        self._marks.drop(key)
        return await self._in_thread(_unlink, self._path(key))

    async def sessions(self, tenant: str, limit: int = MOST_LISTED, since: float = 0.0) -> Sequence[StoredSession]:
        """Return the sessions of a tenant; one list is made at a time."""
        await self._queue.settle()
        async with self._lists:
            return await self._in_thread(lambda of: self._list(of, limit, since), tenant)

    async def flush(self) -> None:
        """Wait until everything is written."""
        await self._queue.flush()

    async def close(self) -> None:
        """Write what is queued."""
        await self._queue.close()

    async def _in_thread(self, function: Callable[[Argument], Found], argument: Argument) -> Found:
        try:
            return await asyncio.to_thread(function, argument)
        except OSError as error:
            raise store_failed(error) from error

    async def _write(self, batch: Sequence[Append]) -> None:
        marks, full = await asyncio.to_thread(self._append_all, batch)
        for key, mark in marks.items():
            self._marks.put(key, mark)
        for key in full:
            self._marks.drop(key)
        if time.monotonic() - self._swept_at > _SWEEP_S:
            self._swept_at = time.monotonic()
            evicted = self._evicted
            for key in await asyncio.to_thread(self._sweep):
                self._marks.drop(key)
            if self._evicted > evicted:
                log.warning(FULL, self._evicted)

    # In threads.

    def _append_all(self, batch: Sequence[Append]) -> tuple[dict[SessionKey, bytes], list[SessionKey]]:
        """Append events to files; return the marks of their sessions, and which of them have no room for some."""
        marks: dict[SessionKey, bytes] = {}
        full: list[SessionKey] = []
        by_session: defaultdict[SessionKey, list[StoredEvent]] = defaultdict(list)
        for each in batch:
            by_session[each.key].append(StoredEvent(each.event, each.takes_reserve))
        for key, events in by_session.items():
            path = self._path(key)
            path.parent.mkdir(mode=0o700, exist_ok=True)
            file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                size = os.fstat(file).st_size
                fitting = self._limit.fitting(key[1], size, events)
                if len(fitting) < len(events):
                    full.append(key)
                if not fitting:
                    continue
                if not size:
                    head = {"tenant": key[0], "session": key[1], "created_at": time.time()}
                    fitting.insert(0, json.dumps(head).encode())
                # One call for all: what processes append at once is not mixed up.
                contents = b"".join(map(_framed, fitting))
                if os.write(file, contents) < len(contents):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                marks[key] = os.pread(file, _FRAME.size, 0)
            finally:
                os.close(file)
        return marks, full

    def _read(self, path: Path) -> list[bytes]:
        try:
            return list(_events_in(path.read_bytes()))
        except FileNotFoundError:
            return []

    def _list(self, tenant: str, limit: int, since: float) -> list[StoredSession]:
        """Read the heads of files, the last changed first, until none that is left can have begun later."""
        newest: list[tuple[float, str]] = []
        for changed_at, _, path in sorted(_files(self._tenant_folder(tenant), "*"), reverse=True):
            if changed_at + _COARSE_S < (newest[0][0] if len(newest) == limit else since):
                break
            head = _head_of(path)
            if head.get("tenant") == tenant and head["created_at"] >= since:
                add = heapq.heappush if len(newest) < limit else heapq.heappushpop
                add(newest, (head["created_at"], head["session"]))
        return [StoredSession(name, began) for began, name in sorted(newest, reverse=True)]

    def _sweep(self) -> list[SessionKey]:
        """Delete what is too old, and beyond the size what whoever has most used least recently; return which
        sessions.
        """
        shares: defaultdict[Path, list[tuple[float, int, Path]]] = defaultdict(list)
        for changed_at, size, path in _files(self._folder, "*/*"):
            shares[path.parent].append((changed_at, size, path))
        expired, kept = time.time() - self._ttl_s, dict[Path, deque[tuple[float, int, Path]]]()
        dropped: list[SessionKey] = []
        for folder, files in shares.items():
            kept[folder] = deque(sorted(files))
            while kept[folder] and kept[folder][0][0] <= expired:
                dropped += _dropped(kept[folder].popleft()[2])
        sizes = {folder: sum(size for _, size, _ in files) for folder, files in kept.items()}
        beyond = sum(sizes.values()) - self._max_bytes
        while beyond > 0:
            most = max(sizes, key=sizes.__getitem__)
            _, size, path = kept[most].popleft()
            sizes[most] -= size
            beyond -= size
            dropped += _dropped(path)
            self._evicted += 1
        return dropped

    def _path(self, key: SessionKey) -> Path:
        return self._tenant_folder(key[0]) / f"{_name(key[1])}{_SUFFIX}"

    def _tenant_folder(self, tenant: str) -> Path:
        return self._folder / _name(tenant)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _unlink(path: Path) -> bool:
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    return True


def _dropped(path: Path) -> list[SessionKey]:
    """Delete a file; return whose session it had, if its beginning is there."""
    head = _head_of(path)
    _unlink(path)
    return [(head["tenant"], head["session"])] if head else []


def _files(folder: Path, pattern: str) -> Iterator[tuple[float, int, Path]]:
    """Yield the files of sessions in a folder, each after when it was last changed and its size."""
    for path in folder.glob(pattern + _SUFFIX):
        with contextlib.suppress(FileNotFoundError):  # another process was faster
            status = path.stat()
            yield status.st_mtime, status.st_size, path


def _head_of(path: Path) -> dict[str, Any]:
    """Return whose session a file has, and since when; nothing if it is gone, or its beginning was cut off."""
    try:
        with open(path, "rb") as file:
            head = json.loads(next(_events_in(file.read(_HEAD_BYTES)), b""))
    except (FileNotFoundError, ValueError):
        return {}
    return head if isinstance(head, dict) and "tenant" in head else {}


def _name(text: str) -> str:
    """Return a name for a file: ids of sessions may have any characters."""
    return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=16).hexdigest()


def _framed(event: bytes) -> bytes:
    return _FRAME.pack(_MAGIC, len(event), zlib.crc32(event)) + event


def _events_in(contents: bytes) -> Iterator[bytes]:
    """Yield whole events; parts that a crash has cut off are passed over."""
    at = 0
    while (at := contents.find(_MAGIC, at)) >= 0 and at + _FRAME.size <= len(contents):
        _, size, checksum = _FRAME.unpack_from(contents, at)
        event = contents[at + _FRAME.size : at + _FRAME.size + size]
        if len(event) == size and zlib.crc32(event) == checksum:
            yield event
            at += _FRAME.size + size
        else:
            at += 1
