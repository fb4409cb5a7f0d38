"""The key that control routes ask for: read once, compared in constant time, never shown."""

import hmac
from collections.abc import Mapping
from pathlib import Path

from tokenwire.errors import InvalidRequest

_VARIABLE = "TOKENWIRE_ADMIN_KEY"


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
    key = environment.get(_VARIABLE)
    if path is not None:
        try:
            key = path.read_text().strip()
        except OSError as error:
            raise InvalidRequest(f"--admin-key-file: cannot read {path}: {error.strerror}") from error
    if key is None:
        return None
    if not key:
        raise InvalidRequest(f"The admin key is empty: {path or _VARIABLE}")
    return AdminKey(key)
