"""Cuts rendered conversations into pieces that tokenize by themselves, and remembers the ids of pieces seen before.

Why the ids of the pieces, put together, are the ids of the whole: a tokenizer first looks for added tokens in the text
as it is, from left to right, the longest first, and hands what lies between them to everything else separately. So a
cut is exact in front of a token that is found wherever it is written: one that no other such token overlaps, contains
or continues, and that depends on nothing around it. Each piece but the first begins with such a token, so that what
looks at the beginning of the text (Metaspace's prefix) sees in the piece what it would see in the whole.
"""

import json
import threading
from array import array
from collections import OrderedDict
from collections.abc import Collection, Iterable, Sequence

from tokenizers import AddedToken, Tokenizer

# Shorter pieces would cost more to look up than to tokenize.
_MIN_PIECE = 512
# Each costs a search of the whole text.
_MAX_TOKENS = 12

# What an entry takes beside its text and ids.
_ENTRY_BYTES = 300


def cutting_tokens(backend: Tokenizer, wanted: Collection[str]) -> tuple[str, ...]:
    """Return those of the wanted texts in front of which any text may be cut."""
    if backend.encode_special_tokens:
        return ()
    added = {token.content: token for token in backend.get_added_tokens_decoder().values()}
    # Tokens marked as normalized are looked for later, between those that are not, in the normalized text.
    first = {text for text, token in added.items() if not token.normalized}
    later = added.keys() - first if _changes_nothing(backend) else set()
    found = [
        text
        for text in wanted
        if (text in first and _is_found_anywhere(added[text], first))
        or (text in later and _is_found_anywhere(added[text], added) and not any(other in text for other in first))
    ]
    return tuple(found[:_MAX_TOKENS])


def _changes_nothing(backend: Tokenizer) -> bool:
    if backend.normalizer is None:
        return True
    state = json.loads(backend.normalizer.__getstate__())
    return bool(state["type"] == "Sequence" and not state["normalizers"])


def _is_found_anywhere(token: AddedToken, others: Iterable[str]) -> bool:
    text = token.content
    if token.lstrip or token.single_word or _touches_words(text[0]) or _touches_words(text[-1]):
        return False
    return not any(_hides(other, text) for other in others)


def _touches_words(character: str) -> bool:
    # Blanks may be part of a neighbour's match, and letters keep a neighbour from being a word of its own.
    return character.isspace() or character.isalnum() or character == "_"


def _hides(other: str, text: str) -> bool:
    """Tell whether the other token may be found in place of this one: around it, or over its beginning."""
    if other != text and text in other:
        return True
    return any(other.endswith(text[:length]) for length in range(1, len(text)))


def cut(text: str, tokens: Sequence[str]) -> list[str]:
    """Cut a text in front of tokens. The pieces of a text that goes on begin with those of what it continues."""
    places = sorted(place for token in tokens for place in _places(text, token))
    pieces, start = [], 0
    for place in places:
        if place - start >= _MIN_PIECE:
            pieces.append(text[start:place])
            start = place
    return [*pieces, text[start:]]


def _places(text: str, token: str) -> Iterable[int]:
    place = text.find(token)
    while place >= 0:
        yield place
        place = text.find(token, place + len(token))


class SegmentCache:
    """The ids of pieces, the least recently used ones forgotten first. Threads may share it."""

    def __init__(self, max_bytes: int = 64 << 20) -> None:
        self._left = max_bytes
        self._entries: OrderedDict[str, array[int]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, piece: str) -> "array[int] | None":
        """Return a piece's ids if it was seen."""
        with self._lock:
            ids = self._entries.get(piece)
            if ids is not None:
                self._entries.move_to_end(piece)
        return ids

    def new_chars(self, pieces: Iterable[str]) -> int:
        """Return how many characters of pieces were not seen."""
        with self._lock:
            return sum(len(piece) for piece in pieces if piece not in self._entries)

    def put(self, piece: str, ids: "array[int]") -> None:
        """Remember a piece's ids."""
        with self._lock:
            if piece in self._entries:
                return
            self._entries[piece] = ids
            self._left -= _size(piece, ids)
            while self._left < 0:
                self._left += _size(*self._entries.popitem(last=False))


def _size(piece: str, ids: "array[int]") -> int:
    widest = 1 if piece.isascii() else 4
    return len(piece) * widest + len(ids) * ids.itemsize + _ENTRY_BYTES
