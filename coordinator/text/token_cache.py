"""Splits rendered conversations into pieces that tokenize independently, and caches the ids of pieces.

Why the pieces' ids together are the ids of the whole: a tokenizer first searches the raw text for added tokens
from left to right, the longest first, and processes the text between them separately. So a
cut is exact before a token that is found wherever it occurs: one that no other such token overlaps, contains
or continues, and that does not depend on its surroundings. Each piece but the first begins with such a token, so that
rules about the beginning of a text (Metaspace's prefix) apply to the piece as they do to the whole.
"""

import threading
from array import array
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping, Sequence

from tokenizers import AddedToken, Tokenizer

from tokenwire.coordinator.text.word_rules import component_parts

# Shorter pieces would cost as much to look up as to tokenize.
_MIN_PIECE = 128
# Each costs one search of the whole text.
_MAX_TOKENS = 12

# Size of an entry without its text and ids.
_ENTRY_BYTES = 300


def cutting_tokens(backend: Tokenizer, wanted: Collection[str]) -> tuple[str, ...]:
    """Return those of the wanted tokens before which any text may be cut."""
    if backend.encode_special_tokens:
        return ()
    added = {token.content: token for token in backend.get_added_tokens_decoder().values()}
    # Tokens marked as normalized are searched for later, between the others, in the normalized text.
    first = {text for text, token in added.items() if not token.normalized}
    later = added.keys() - first if not any(component_parts(backend.normalizer, "normalizers")) else set()
    found = [
        text
        for text in wanted
        if (text in first and _is_found_anywhere(added[text], first))
        or (text in later and _is_found_anywhere(added[text], added) and not any(other in text for other in first))
    ]
    return tuple(found[:_MAX_TOKENS])


def _is_found_anywhere(token: AddedToken, others: Iterable[str]) -> bool:
    text = token.content
    if token.lstrip or token.single_word or _touches_words(text[0]) or _touches_words(text[-1]):
        return False
    return not any(_may_hide(other, text) for other in others)


def _touches_words(character: str) -> bool:
    # Whitespace may be part of a neighbour's match; a letter may prevent a neighbour from matching as a single word.
    return character.isspace() or character.isalnum() or character == "_"


def _may_hide(other: str, text: str) -> bool:
    """Return whether the other token may match in place of this one: around it, or over its beginning."""
    if other != text and text in other:
        return True
    return any(other.endswith(text[:length]) for length in range(1, len(text)))


def cut(text: str, tokens: Sequence[str]) -> list[str]:
    """Cut a text before tokens. The pieces of a prefix are the first pieces of the longer text, except the last."""
    positions = sorted(position for token in tokens for position in _positions(text, token))
    pieces, start = [], 0
    for position in positions:
        if position - start >= _MIN_PIECE:
            pieces.append(text[start:position])
            start = position
    return [*pieces, text[start:]]


def _positions(text: str, token: str) -> Iterable[int]:
    position = text.find(token)
    while position >= 0:
        yield position
        position = text.find(token, position + len(token))


class TokenCache:
    """A thread-safe LRU cache of pieces' ids, bounded in bytes."""

    def __init__(self, max_bytes: int = 64 << 20) -> None:
        self._free_bytes = max_bytes
        self._entries: OrderedDict[str, array[int]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, piece: str) -> "array[int] | None":
        """Return a piece's ids if they are cached."""
        with self._lock:
            ids = self._entries.get(piece)
            if ids is not None:
                self._entries.move_to_end(piece)
        return ids

    def known(self, pieces: Iterable[str]) -> "dict[str, array[int]]":
        """Return the ids of those pieces that are cached."""
        return {piece: ids for piece in pieces if (ids := self.get(piece)) is not None}

    def join(
        self, pieces: Iterable[str], known: "Mapping[str, array[int]]", new: Iterable[Sequence[int]]
    ) -> "array[int]":
        """Return the ids of pieces, with those of new ones in their order, and cache these.

        An array: those of long conversations are copied, and never made objects.
        """
        fresh, joined = iter(new), array("I")
        for piece in pieces:
            ids = known.get(piece)
            if ids is None:
                ids = array("I", next(fresh))
                self.put(piece, ids)
            joined += ids
        return joined

    def put(self, piece: str, ids: "array[int]") -> None:
        """Cache a piece's ids."""
        with self._lock:
            if piece in self._entries:
                return
            self._entries[piece] = ids
            self._free_bytes -= _size(piece, ids)
            while self._free_bytes < 0:
                self._free_bytes += _size(*self._entries.popitem(last=False))


def _size(piece: str, ids: "array[int]") -> int:
    widest = 1 if piece.isascii() else 4
    return len(piece) * widest + len(ids) * ids.itemsize + _ENTRY_BYTES
