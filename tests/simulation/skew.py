"""Processes of other minor versions of the protocol: what they send and read, as protobuf would have it.

An older one lacks the fields and calls that `proto/` says are newer ("Since minor version 5"): they are cut from what
it sends and from what it reads. A newer one sends fields and messages that nobody else knows.
"""

import functools
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from tests.simulation.world import Node
from tokenwire.protocol.version import MINOR
from tokenwire.v1 import inference_pb2 as pb

M = TypeVar("M", bound=Message)

_PROTO = Path(__file__).resolve().parents[2] / "proto" / "tokenwire" / "v1"
_SINCE = re.compile(r"Since (?:minor version |1\.)(\d+)")
_DECLARATION = re.compile(
    r"(?P<comment>(?:^ *//[^\n]*\n)*)^ *(?:(?P<block>message|service|enum|oneof) (?P<name>\w+) \{(?!\})"
    r"|(?:rpc (?P<call>\w+)\(|[\w.<>, ]+ (?P<field>\w+) = \d+;)|(?P<end>\}))",
    re.MULTILINE,
)
_UNKNOWN = b"\xc2\x3e\x03new"
"""A field that no version has: number 1000, the text "new"."""
_UNKNOWN_EVERY = 7
"""Among so many messages of a stream, a newer peer sends one more that is unknown."""


def _since(text: str) -> Iterator[tuple[str, int]]:
    """Yield the fields and calls of a .proto file that did not exist from the beginning, with their minor versions."""
    blocks: list[str] = []
    for match in _DECLARATION.finditer(text):
        since = _SINCE.search(" ".join(match["comment"].replace("//", " ").split()))
        if match["end"]:
            blocks.pop()
        elif match["block"]:
            blocks.append("" if match["block"] == "oneof" else match["name"])
        elif since is not None:
            yield ".".join(each for each in [*blocks, match["call"] or match["field"]] if each), int(since[1])


SINCE = {
    f"tokenwire.v1.{name}": minor for path in sorted(_PROTO.glob("*.proto")) for name, minor in _since(path.read_text())
}
"""Minor versions by the names of fields and calls, but for those that have always been there."""
OLDEST, NEWEST = 2, MINOR + 1
"""The minor versions that are simulated: before them, a worker that stopped could hand nothing back."""


def has_call(node: Node, method: str) -> bool:
    """Return whether a process serves a call."""
    return SINCE.get(method.removeprefix("/").replace("/", "."), 0) <= node.minor


def as_sent(node: Node, message: M) -> M:
    """Return a message as a process of its version sends it."""
    if node.minor == MINOR:
        return message
    copy = type(message)()
    copy.CopyFrom(message)
    _change(copy, node.minor)
    return copy


def as_read(node: Node, message: M) -> M:
    """Return a message as a process of its version reads it."""
    if node.minor < MINOR:
        _cut(message, node.minor)
        for each in _tree(message):  # the code that plays it knows what newer ones have to send
            if isinstance(each, pb.ProtocolVersion):
                each.minor = min(each.minor, node.minor)
    elif node.minor > MINOR:
        message.DiscardUnknownFields()  # its version has them; the code that plays it does not
    return message


def without_unknown(message: M) -> M:
    """Return a message without fields of a newer version."""
    copy = type(message)()
    copy.CopyFrom(message)
    copy.DiscardUnknownFields()
    return copy


def sends_unknown(node: Node, number: int) -> bool:
    """Return whether a process sends a message of a type that no other version has after this one of a stream."""
    return node.minor > MINOR and number % _UNKNOWN_EVERY == _UNKNOWN_EVERY - 1


def unknown_message(message: M) -> M:
    """Return a message of the same type, of which other versions know nothing."""
    unknown = type(message)()
    unknown.MergeFromString(_UNKNOWN)
    return unknown


def _change(message: Message, minor: int) -> None:
    _cut(message, minor)
    for each in _tree(message):
        if isinstance(each, pb.ProtocolVersion):
            each.minor = minor
        elif minor > MINOR:
            each.MergeFromString(_UNKNOWN)


def _cut(message: Message, minor: int) -> None:
    if _has_newer(message.DESCRIPTOR, minor):
        for field, value in message.ListFields():
            if SINCE.get(field.full_name, 0) > minor:
                message.ClearField(field.name)
            else:
                for each in _messages(field, value):
                    _cut(each, minor)


@functools.cache
def _has_newer(descriptor: Descriptor, minor: int) -> bool:
    """Return whether a message of this type can have anything that a minor version does not."""
    found, left = {descriptor}, [descriptor]  # a batch of commands is a command itself
    while left:
        within = {field.message_type for field in left.pop().fields if field.message_type is not None} - found
        found |= within
        left += within
    return any(SINCE.get(field.full_name, 0) > minor for each in found for field in each.fields)


def _tree(message: Message) -> Iterator[Message]:
    """Yield a message and all within it that are set."""
    yield message
    for field, value in message.ListFields():
        for each in _messages(field, value):
            yield from _tree(each)


def _messages(field: FieldDescriptor, value: object) -> Iterator[Message]:
    if field.message_type is None or field.message_type.GetOptions().map_entry:
        return
    if isinstance(value, Message):
        yield value
    elif isinstance(value, Iterable):
        yield from value
