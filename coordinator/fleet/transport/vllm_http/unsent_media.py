"""Bytes of media on their way to plain vLLM servers: all sessions with such servers share them."""

import hashlib
import hmac
import uuid
from collections import OrderedDict
from functools import cached_property

_MOST_BYTES = 256 * 2**20


class UnsentMedia:
    """Holds the latest items by digest. A server keeps what it makes of one, so few are needed twice."""

    def __init__(self, key: str | None, most_bytes: int = _MOST_BYTES) -> None:
        """`key` is the servers' API key, if they have one: coordinators with one key have one name for an item."""
        self._key = key
        self._most_bytes = most_bytes
        self._bytes = 0
        self._items: OrderedDict[bytes, bytes] = OrderedDict()

    def name(self, digest: bytes) -> str:
        """Return the name that servers get for an item: nobody else can give it to another one there."""
        return hmac.digest(self._secret, digest, hashlib.sha256).hex()

    @cached_property
    def _secret(self) -> bytes:
        return uuid.uuid4().bytes if self._key is None else self._key.encode()

    def put(self, digest: bytes, data: bytes) -> None:
        """Store an item; the oldest ones make room, except for itself."""
        self._bytes += len(data) - len(self._items.pop(digest, b""))
        self._items[digest] = data
        while self._bytes > self._most_bytes and len(self._items) > 1:
            self._bytes -= len(self._items.popitem(last=False)[1])

    def get(self, digest: bytes) -> bytes | None:
        """Return an item; None if it was dropped."""
        return self._items.get(digest)
