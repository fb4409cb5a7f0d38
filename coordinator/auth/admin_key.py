"""The key that control routes ask for: read once, compared in constant time, never shown."""

import hmac


class AdminKey:
    """A secret. Neither its repr nor its str tell it."""

    __slots__ = ("_key",)

    def __init__(self, key: str) -> None:
        self._key = key.encode()

    def matches(self, candidate: str) -> bool:
        """Tell whether somebody knows the key."""
        return hmac.compare_digest(self._key, candidate.encode())

    def __repr__(self) -> str:
        return "AdminKey(...)"
