"""The key that control routes ask for: read once, compared in constant time, never shown."""

import hmac
from collections.abc import Mapping
from pathlib import Path

from tokenwire.coordinator.auth.secret_files import read_secret


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


def read_admin_key(path: Path | None, environment: Mapping[str, str]) -> AdminKey | None:
    """Read the key from a file, else from the environment; None where there is none. Raises InvalidRequest."""
    key = read_secret("admin key", path, "--admin-key-file", environment, "TOKENWIRE_ADMIN_KEY")
    return None if key is None else AdminKey(key)
