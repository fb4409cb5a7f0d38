"""The key of admin routes: read once, compared in constant time, never logged."""

import hmac


class AdminKey:
    """A secret. Neither its repr nor its str reveal it."""

    __slots__ = ("_key",)

    def __init__(self, key: str) -> None:
        self._key = key.encode()

    def matches(self, candidate: str) -> bool:
        """Return whether a candidate is the key."""
        return hmac.compare_digest(self._key, candidate.encode())

    def __repr__(self) -> str:
        return "AdminKey(...)"
