"""What is kept of a prompt to find where a later one leaves it: hashes, and none of its text."""

import operator
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tokenwire.coordinator.history.digests import message_text, picture_digests
from tokenwire.coordinator.text.template.content_format import ContentFormat

BLOCK_TOKENS = 64
SHOWN_CHARS = 80
"""Of the text on either side of a difference."""
_PIECE_CHARS, _MOST_PIECES = 64, 4096
_MESSAGE_BYTES, _NUMBER_BYTES = 120, 8


@dataclass(slots=True)
class PromptDigest:
    """The hashes of one prompt's messages and ids."""

    messages: list[int]
    """Of each whole message."""
    pieces: "list[array[int]]"
    """Of each message's role and pictures, and of each piece of its text."""
    blocks: "array[int]"
    """Of each whole block of ids."""
    tokens: int

    @property
    def size_bytes(self) -> int:
        """Its approximate memory."""
        numbers = sum(map(len, self.pieces)) + len(self.blocks)
        return _MESSAGE_BYTES * len(self.messages) + _NUMBER_BYTES * numbers

    def alike(self, other: "PromptDigest") -> tuple[int, int]:
        """Return how many messages from the first on are equal in both, and how many are at their places."""
        same = [mine == theirs for mine, theirs in zip(self.pieces, other.pieces, strict=False)]
        return (same.index(False) if False in same else len(same)), sum(same)

    def alike_ids(self, other: "PromptDigest") -> tuple[int, int]:
        """Return the same of whole blocks of ids."""
        common = _common(self.blocks, other.blocks)
        return common, common + sum(map(operator.eq, self.blocks[common:], other.blocks[common:]))

    def common_tokens(self, other: "PromptDigest") -> int:
        """Return how many ids from the first on are equal in both, in whole blocks."""
        return BLOCK_TOKENS * _common(self.blocks, other.blocks)


def digest_prompt(
    messages: Sequence[Mapping[str, Any]],
    form: ContentFormat,
    token_ids: Sequence[int],
    known: Sequence[PromptDigest] = (),
) -> PromptDigest:
    """Return the hashes of a prompt; the pieces of messages that earlier ones have are theirs."""
    hashes = [_hash_of(message) for message in messages]
    pieces = []
    for position, (message, whole) in enumerate(zip(messages, hashes, strict=True)):
        found = next(
            (each.pieces[position] for each in known if each.messages[position : position + 1] == [whole]), None
        )
        pieces.append(_pieces(message, position, form) if found is None else found)
    ids = token_ids if isinstance(token_ids, array) else array("I", token_ids)
    blocks = range(0, len(ids) - BLOCK_TOKENS + 1, BLOCK_TOKENS)
    return PromptDigest(
        hashes, pieces, array("q", [hash(ids[start : start + BLOCK_TOKENS].tobytes()) for start in blocks]), len(ids)
    )


def text_at_difference(
    message: Mapping[str, Any], position: int, form: ContentFormat, pieces: "array[int]", old: "array[int]"
) -> str:
    """Return the text of a message with these pieces around the first one that another message does not have."""
    text = message_text(message, position, form)
    common = _common(old[1:], pieces[1:])
    start = _piece_chars(text) * common if old[1:] != pieces[1:] else 0  # another role or picture: where it begins
    return text[max(0, start - SHOWN_CHARS) : start + SHOWN_CHARS]


def _hash_of(message: Mapping[str, Any]) -> int:
    content = message.get("content")
    if isinstance(content, str):
        return hash((content, repr({name: value for name, value in message.items() if name != "content"})))
    return hash(repr(message))


def _pieces(message: Mapping[str, Any], position: int, form: ContentFormat) -> "array[int]":
    """Return the hash of a message's role and pictures, and those of the pieces of its text."""
    text = message_text(message, position, form)
    size = _piece_chars(text)
    hashes = [hash(text[start : start + size]) for start in range(0, len(text), size)]
    return array("q", [hash((message.get("role"), *picture_digests(message))), *hashes])


def _piece_chars(text: str) -> int:
    """Return the length of a text's pieces: of long ones with some reserve, so that growing texts have the same."""
    size = _PIECE_CHARS
    while len(text) > size * _MOST_PIECES:
        size *= 2
    return size


def _common(one: "array[int]", other: "array[int]") -> int:
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
