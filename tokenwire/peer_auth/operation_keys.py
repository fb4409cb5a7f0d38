"""Keys with which coordinators authenticate their admin operations: several at a time, for rotation."""

import hmac
from collections.abc import Callable
from pathlib import Path

from tokenwire.errors import InvalidRequest
from tokenwire.process.hot_reload import Reloading
from tokenwire.protocol.operation_records import MAX_SIGNATURES
from tokenwire.v1 import inference_pb2 as pb

OPERATIONS_KEY_FLAG, OPERATIONS_KEY_VARIABLE = "--operations-key-file", "TOKENWIRE_OPERATIONS_KEY"
_CONTEXT = b"tokenwire.v1.Operation\0"
_MIN_CHARACTERS = 32
"""A worker has what is signed and its signatures, so it could try out short keys."""


class OperationKeys:
    """The first key signs, all verify. Neither its repr nor its str reveal them."""

    __slots__ = ("_keys",)

    def __init__(self, text: str, source: str = OPERATIONS_KEY_VARIABLE) -> None:
        """Parse keys, one per line. Raises an InvalidRequest that names the source."""
        self._keys = [line.strip().encode() for line in text.splitlines() if line.strip()]
        if not self._keys:
            raise InvalidRequest(f"{source} holds no key")
        if any(len(key) < _MIN_CHARACTERS for key in self._keys):
            raise InvalidRequest(f"{source}: a key must have at least {_MIN_CHARACTERS} characters")

    def sign(self, operation: bytes) -> pb.OperationRecord:
        """Return the record of a serialized operation."""
        return pb.OperationRecord(operation=operation, signatures=[_signature(self._keys[0], operation)])

    def verify(self, record: pb.OperationRecord) -> bool:
        """Return whether a record has a signature by one of the keys."""
        expected = [_signature(key, record.operation) for key in self._keys]
        return any(hmac.compare_digest(one, other) for one in expected for other in record.signatures[:MAX_SIGNATURES])

    def __repr__(self) -> str:
        return "OperationKeys(...)"


def open_operation_keys(file: Path | None, fixed: OperationKeys | None) -> Callable[[], OperationKeys] | None:
    """Return a function for the current keys, of a file or fixed; None without any. Raises InvalidRequest."""
    if fixed is not None:
        return lambda: fixed
    if file is None:
        return None

    def read() -> OperationKeys:
        try:
            return OperationKeys(file.read_text(), f"{OPERATIONS_KEY_FLAG} {file}")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            raise InvalidRequest(f"{OPERATIONS_KEY_FLAG}: cannot read {file}: {reason}") from error

    return Reloading([file], read).current


def _signature(key: bytes, operation: bytes) -> bytes:
    return hmac.digest(key, _CONTEXT + operation, "sha256")
