"""Reads secrets from files or the environment: what stands among a command's arguments, everybody can read."""

from collections.abc import Mapping
from pathlib import Path

from tokenwire.errors import InvalidRequest


def read_secret(what: str, path: Path | None, flag: str, environment: Mapping[str, str], variable: str) -> str | None:
    """Read a secret from the flag's file, else from a variable; None where it is in neither. Raises InvalidRequest."""
    secret = environment.get(variable)
    if path is not None:
        try:
            secret = path.read_text().strip()
        except OSError as error:
            raise InvalidRequest(f"{flag}: cannot read {path}: {error.strerror}") from error
    if secret == "":
        raise InvalidRequest(f"The {what} is empty: {path or variable}")
    return secret
