"""API keys: read from a file or the environment, kept as digests only, found in constant time."""

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tokenwire.coordinator.auth.rate_limit import UNLIMITED, Limits
from tokenwire.coordinator.shared_redis import check_url
from tokenwire.errors import InvalidRequest
from tokenwire.options import Option, Section, option
from tokenwire.process.hot_reload import Reloading

VARIABLE = "TOKENWIRE_API_KEY"
_FLAG = "--api-keys-file"
_STORE_FLAG = "--limits-store"
_HEX_DIGEST = re.compile(r"[0-9a-fA-F]{64}")
_LIMITS = ("max_concurrent", "requests_per_minute", "tokens_per_minute")
_FIELDS = {"tenant", "key", "sha256", "min_priority", "models", "weight", *_LIMITS}
_MAX_LIMIT = 2**53
"""Limits are computed as floats, which represent integers exactly up to here."""
_WEIGHTS = range(1, 10_001)
_PRIORITIES = range(-(2**63), 2**63)
"""The protocol's range."""


@dataclass(frozen=True, slots=True)
class ApiKey:
    """One key and its permissions."""

    digest: bytes = field(repr=False)
    """SHA-256 of the key, which is not stored: the time to compare digests reveals nothing about the key."""
    tenant: str
    limits: Limits = UNLIMITED
    min_priority: int = 0
    """Of its requests, whatever they ask for: a lower number would go before everybody else's."""
    models: frozenset[str] | None = None
    weight: int = 1
    """Of its tenant, whose share of the workers is that of as many tenants of weight 1."""


class ApiKeys:
    """The valid keys. Neither its repr nor its str reveal them."""

    __slots__ = ("_keys", "limited", "tenants")

    def __init__(self, keys: Iterable[ApiKey]) -> None:
        self._keys = {key.digest: key for key in keys}
        self.tenants = frozenset(key.tenant for key in self._keys.values())
        """The tenants that have a key."""
        self.limited = any(key.limits != UNLIMITED for key in self._keys.values())
        """Whether a key has limits."""

    def find(self, candidate: bytes) -> ApiKey | None:
        """Return the key that matches a candidate; None if invalid."""
        return self._keys.get(_digest(candidate))

    def __repr__(self) -> str:
        return f"ApiKeys({len(self._keys)} keys)"


def _parse_variable(text: str) -> tuple["ApiKey", ...]:
    keys = [key.strip() for key in text.split(",") if key.strip()]
    if not keys:
        raise InvalidRequest(f"{VARIABLE} is set, but holds no key")
    return tuple(_nameless(key, VARIABLE) for key in keys)


@dataclass(frozen=True, slots=True)
class AuthSettings:
    """Sources of keys; without any, no key is required."""

    file: Path | None = option(
        None,
        Option(
            _FLAG,
            "File with API keys and their limits, reloaded when it changes. Keys may also be in "
            f"{VARIABLE}, separated by commas.",
            Section.ADMISSION,
            path="existing file",
        ),
    )
    keys: tuple[ApiKey, ...] = option(
        (),
        Option("", "API keys, separated by commas.", Section.ADMISSION, variable=VARIABLE, parse=_parse_variable),
    )

    limits_store: str | None = option(
        None,
        Option(
            _STORE_FLAG,
            "Redis or Valkey in which coordinators and processes count the limits of API keys and the work of tenants "
            "together: redis://HOST:PORT/DB. Needs the extra `redis`.",
            Section.ADMISSION,
            default_text="each process by itself",
        ),
    )
    limits_store_password: str | None = option(
        None,
        Option(
            f"{_STORE_FLAG}-password-file",
            f"File with the password of {_STORE_FLAG}; or set TOKENWIRE_LIMITS_STORE_PASSWORD.",
            Section.ADMISSION,
            path="existing file",
            contents="password of the store of limits",
        ),
    )

    def __post_init__(self) -> None:
        if self.limits_store is not None:
            check_url(self.limits_store, _STORE_FLAG)

    @property
    def enabled(self) -> bool:
        """Whether a key is required."""
        return self.file is not None or bool(self.keys)


def open_keys(settings: AuthSettings) -> Callable[[], ApiKeys] | None:
    """Return a function for the current keys; None if no key is required. Raises InvalidRequest."""
    if settings.file is None:
        fixed = ApiKeys(settings.keys)
        return (lambda: fixed) if settings.keys else None
    file = settings.file

    def read() -> ApiKeys:
        try:
            return ApiKeys([*settings.keys, *parse_keys(file.read_text(), f"{_FLAG} {file}")])
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not text"
            raise InvalidRequest(f"{_FLAG}: cannot read {file}: {reason}") from error

    return Reloading([file], read).current


def parse_keys(text: str, source: str) -> list[ApiKey]:
    """Parse keys: a JSON list of objects, or one per line, each after its tenant's name if it has one.

    Raises an InvalidRequest that names the source and the entry, never its contents.
    """
    keys = _parse_json(text, source) if text.lstrip().startswith("[") else _parse_lines(text, source)
    if not keys:
        raise InvalidRequest(f"{source} holds no key")
    if len({key.digest for key in keys}) < len(keys):
        raise InvalidRequest(f"{source} holds a key twice")
    weights: dict[str, int] = {}
    for key in keys:
        if weights.setdefault(key.tenant, key.weight) != key.weight:
            raise InvalidRequest(f"{source}: the keys of tenant {key.tenant} have different weights")
    return keys


def _parse_lines(text: str, source: str) -> list[ApiKey]:
    keys = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        where = f"{source}, line {number}"
        if len(words) > 2:
            raise InvalidRequest(f"{where}: expected TENANT KEY or KEY, got {len(words)} words")
        if words:
            keys.append(_nameless(words[0], where) if len(words) == 1 else ApiKey(_known(words[1], where), words[0]))
    return keys


def _parse_json(text: str, source: str) -> list[ApiKey]:
    try:
        entries = json.loads(text)
    except ValueError as error:
        # Not `from error`: a traceback would contain the whole text.
        raise InvalidRequest(f"{source} is not JSON: {error}") from None
    except RecursionError:
        raise InvalidRequest(f"{source} is nested too deeply") from None
    return [_parse_entry(entry, f"{source}, entry {number}") for number, entry in enumerate(entries, 1)]


def _parse_entry(entry: Any, where: str) -> ApiKey:
    if not isinstance(entry, dict):
        raise InvalidRequest(f"{where} is not an object")
    if unknown := sorted(entry.keys() - _FIELDS):
        raise InvalidRequest(f"{where} has the unknown field {unknown[0]!r}; known: {', '.join(sorted(_FIELDS))}")
    if ("key" in entry) == ("sha256" in entry):
        raise InvalidRequest(f"{where} needs one of `key` and `sha256`")
    secret = _of_type(entry, "key", str, where) or f"sha256:{_of_type(entry, 'sha256', str, where)}"
    digest = _known(secret, where)
    models = _of_type(entry, "models", list, where)
    return ApiKey(
        digest,
        _of_type(entry, "tenant", str, where) or _name(digest),
        _limits(entry, where),
        _min_priority(entry, where),
        None if models is None else frozenset(map(str, models)),
        _weight(entry, where),
    )


def _weight(entry: Mapping[str, Any], where: str) -> int:
    weight: int | None = _of_type(entry, "weight", int, where)
    if weight is None:
        return 1
    if weight not in _WEIGHTS:
        raise InvalidRequest(f"{where}: weight must be from 1 to {_WEIGHTS[-1]}")
    return weight


def _min_priority(entry: Mapping[str, Any], where: str) -> int:
    priority: int | None = _of_type(entry, "min_priority", int, where)
    if priority is None:
        return 0
    if priority not in _PRIORITIES:
        raise InvalidRequest(f"{where}: min_priority must be an integer of 64 bits")
    return priority


def _limits(entry: Mapping[str, Any], where: str) -> Limits:
    limits = {name: _of_type(entry, name, int, where) for name in _LIMITS}
    for name, limit in limits.items():
        if limit is not None and limit < 1:
            raise InvalidRequest(f"{where}: {name} must be at least 1, got {limit}")
        if limit is not None and limit > _MAX_LIMIT:
            raise InvalidRequest(f"{where}: {name} must be at most {_MAX_LIMIT}")
    return Limits(**limits)


def _of_type(entry: Mapping[str, Any], name: str, kind: type, where: str) -> Any:
    value = entry.get(name)
    if value is not None and (not isinstance(value, kind) or isinstance(value, bool)):
        raise InvalidRequest(f"{where}: {name} must be of type {kind.__name__}, not {type(value).__name__}")
    return value


def _nameless(key: str, where: str) -> ApiKey:
    digest = _known(key, where)
    return ApiKey(digest, _name(digest))


def _name(digest: bytes) -> str:
    return f"key-{digest.hex()[:8]}"


def _known(key: str, where: str) -> bytes:
    """Return the digest of a key in plain text or as sha256:HEX."""
    kind, _, value = key.partition(":")
    if kind == "sha256":
        if not _HEX_DIGEST.fullmatch(value):
            raise InvalidRequest(f"{where}: a SHA-256 has 64 hexadecimal digits")
        return bytes.fromhex(value)
    if not key or any(not 0x21 <= ord(character) <= 0x7E for character in key):
        raise InvalidRequest(f"{where}: a key must be printable ASCII without spaces")
    return _digest(key.encode())


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
