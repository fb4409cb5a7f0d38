"""Bounds what it takes to read a peer's message: in 16 MiB there can be eight million parts of 100 bytes of memory.

https://protobuf.dev/programming-guides/encoding/
"""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Union

import grpc
from google.protobuf.descriptor import Descriptor, FieldDescriptor

MOST_PARTS = 2**16
"""Fields of a message, with those of the messages in it: a step with the results of 8,192 inputs has as many."""
UNREADABLE = "a message that is malformed, or has too many parts"

_PLAIN_NUMBER_BYTES = 8 * 2**20
"""Of packed numbers: of more, each is the id of a log-probability, which is beside it."""
_MOST_OF_FLOATS = 2
"""Bytes of an id and a rank for those of their log-probability."""

_UNSUSPICIOUS_BYTES = 2 * MOST_PARTS
"""A message of this size has no more parts than it may: each takes two bytes at least."""
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_SIZES = {_FIXED64: 8, _FIXED32: 4}
_COPIED = {
    *(FieldDescriptor.TYPE_FIXED32, FieldDescriptor.TYPE_FIXED64, FieldDescriptor.TYPE_SFIXED32),
    *(FieldDescriptor.TYPE_SFIXED64, FieldDescriptor.TYPE_DOUBLE),
    *(FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES),
}

_Fields = Mapping[int, Union["_Fields", None]]
"""By number, what has parts: messages with their fields, and packed numbers (None); and floats."""
_FLOATS: _Fields = {}


class _MalformedError(Exception):
    """A number has no end, or a field has no type."""


class BoundedChannel:
    """A channel to a peer. Of a message that has too many parts it returns None, as gRPC does of a malformed one."""

    def __init__(self, channel: grpc.aio.Channel, most_number_bytes: int) -> None:
        """most_number_bytes: of packed numbers in a message that are read one by one; floats and bytes are copied."""
        self._channel = channel
        self._most_number_bytes = most_number_bytes
        self.close = channel.close

    async def __aenter__(self) -> "BoundedChannel":
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    def unary_unary(self, *args: Any, **kwargs: Any) -> Any:
        """Return a callable as the channel does; so do the others."""
        return self._channel.unary_unary(*args, **self._bounded(kwargs))

    def unary_stream(self, *args: Any, **kwargs: Any) -> Any:
        """Return one whose answers are several."""
        return self._channel.unary_stream(*args, **self._bounded(kwargs))

    def stream_unary(self, *args: Any, **kwargs: Any) -> Any:
        """Return one that sends several."""
        return self._channel.stream_unary(*args, **self._bounded(kwargs))

    def stream_stream(self, *args: Any, **kwargs: Any) -> Any:
        """Return one of a session."""
        return self._channel.stream_stream(*args, **self._bounded(kwargs))

    def _bounded(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        return {**kwargs, "response_deserializer": self._reader(kwargs["response_deserializer"])}

    def _reader(self, parse: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
        message, most = parse.__self__.DESCRIPTOR, self._most_number_bytes  # type: ignore[attr-defined]

        def read(data: bytes) -> Any:
            if len(data) > _UNSUSPICIOUS_BYTES and not _PartCount(data, most).fits(_fields(message)):
                return None
            return parse(data)

        return read


class _PartCount:
    """What of a message has been looked at."""

    def __init__(self, data: bytes, most_number_bytes: int) -> None:
        self._data = data
        self._parts = MOST_PARTS
        self._most_number_bytes = most_number_bytes
        self._number_bytes = self._float_bytes = 0

    def fits(self, fields: _Fields) -> bool:
        """Return whether the message can be read, and has no more than it may."""
        try:
            self._look_at(0, len(self._data), fields)
        except (IndexError, _MalformedError):
            return False
        most = min(self._most_number_bytes, _PLAIN_NUMBER_BYTES + _MOST_OF_FLOATS * self._float_bytes)
        return self._parts >= 0 and self._number_bytes <= most

    def _look_at(self, at: int, end: int, fields: _Fields) -> None:
        data = self._data
        while at < end and self._parts >= 0 and self._number_bytes <= self._most_number_bytes:
            self._parts -= 1
            tag, at = (data[at], at + 1) if data[at] < 0x80 else self._varint(at)
            kind = tag & 7
            if kind == _BYTES:
                size, at = (data[at], at + 1) if data[at] < 0x80 else self._varint(at)
                inner = fields.get(tag >> 3, _NO_FIELDS)
                if inner is None:
                    self._number_bytes += size
                elif inner is _FLOATS:
                    self._float_bytes += size
                elif inner:
                    self._look_at(at, min(at + size, end), inner)
                at += size
            elif kind == _VARINT:
                at = self._varint(at)[1]
            elif kind in _SIZES:
                at += _SIZES[kind]
            else:  # a group, which no message of ours has
                raise _MalformedError

    def _varint(self, at: int) -> tuple[int, int]:
        """Return the number there, and where it ends."""
        data = self._data
        value = data[at]
        at += 1
        if value < 0x80:
            return value, at
        value &= 0x7F
        for shift in range(7, 70, 7):
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value, at
        raise _MalformedError


_NO_FIELDS: _Fields = {}


@cache
def _fields(message: Descriptor) -> _Fields:
    """Return what has parts in a message."""
    return _fields_of(message, {})


def _fields_of(message: Descriptor, known: dict[str, Any]) -> _Fields:
    """known: messages by name, since they may be in one another."""
    if message.full_name not in known:
        fields = known[message.full_name] = {}
        for field in message.fields:
            if field.message_type is not None:
                fields[field.number] = _fields_of(field.message_type, known)
            elif field.type == FieldDescriptor.TYPE_FLOAT:
                fields[field.number] = _FLOATS
            elif field.type not in _COPIED:
                fields[field.number] = None
    found: _Fields = known[message.full_name]
    return found
