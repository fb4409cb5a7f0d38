"""Encodes texts word by word, where no word's ids depend on others: most words are known already.

Why the ids of a text's words are those of the text: see tokenwire.coordinator.text.word_rules.
"""

from array import array
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import accumulate
from unicodedata import is_normalized

from tokenizers import Tokenizer
from tokenizers.models import BPE

from tokenwire.coordinator.text.word_rules import WordSplit, split_of

_MOST_WORDS, _MOST_CHARS = 64 * 1024, 1024 * 1024
"""Of the words that are kept: usually they take less than 16 MB."""
_LONG = 256
"""Longer words are dropped first."""
_FEW, _MOSTLY, _SAMPLED = 256, 2 / 3, 16
"""Where more words than a few and most of a text's are new, texts are encoded as wholes, and some are found."""
_VISIBLE, _BETWEEN = frozenset(map(chr, range(ord("!"), ord("~") + 1))), " a"
"""Characters after which a text can be cut before any word, and a word that makes others such."""
_PROBES = ("", "A [MASK] of caf\u00e9s, \u6771\u4eac 3.5%  and\tsnowmen\u2603", " It's\n\n  12345 \r\n e\u0301 ")

Words = list[list[str]]
"""The words of each text."""


class _Lengths(dict[int, int]):
    """How many bytes of text a token is, of a byte-level tokenizer."""

    def __init__(self, backend: Tokenizer) -> None:
        super().__init__()
        self._backend = backend
        self._added = backend.get_added_tokens_decoder()

    def __missing__(self, token_id: int) -> int:
        token = self._backend.id_to_token(token_id) or ""
        self[token_id] = length = len(token.encode()) if token_id in self._added else len(token)
        return length


class WordIds:
    """The ids of words, of a tokenizer that has them independently. Thread-safe."""

    def __init__(self, backend: Tokenizer, split: WordSplit, before: Sequence[int], after: Sequence[int]) -> None:
        """`before` and `after`: special ids around each text."""
        self._backend = backend
        self._split = split
        model = backend.model
        self._lengths = _Lengths(backend) if isinstance(model, BPE) and model.unk_token is None else None
        self._around = array("I", before).tobytes(), array("I", after).tobytes()
        self._known: dict[str, bytes] = {}
        """Ids as the bytes of an array. Words are only added; with fewer it is a new one."""
        self._chars = 0

    def split(self, texts: Iterable[str]) -> Words:
        """Return the words of texts."""
        return [*map(self._split, texts)]

    def unknown(self, words: Words) -> set[str]:
        """Return the words whose ids have to be found first."""
        return set[str]().union(*words).difference(self._known)

    def look_up(self, words: Words, add_special_tokens: bool) -> "list[array[int]] | None":
        """Return the ids of texts; None if there is a word that is not known."""
        try:
            return self._joined(words, add_special_tokens, self._known)
        except KeyError:
            return None

    def encode(self, words: Words, add_special_tokens: bool) -> "list[array[int]]":
        """Return the ids of texts, and keep those of new words.

        Raises TypeError for a word without a UTF-8 encoding.
        """
        if (ids := self.look_up(words, add_special_tokens)) is not None:
            return ids
        known, count = self._known, sum(map(len, words))
        new = list(set[str]().union(*words).difference(known))
        is_new = self._lengths is not None and len(new) > max(_FEW, count * _MOSTLY)
        found = self._find(new[: count // _SAMPLED] if is_new else new)
        known.update(found)
        self._chars += sum(map(len, found))
        if len(known) > _MOST_WORDS or self._chars > _MOST_CHARS:
            self._drop(known)
        if not is_new:
            return self._joined(words, add_special_tokens, known)
        texts = ["".join(each) for each in words]
        return self._joined([[text] for text in texts], add_special_tokens, self._find_alone(texts))

    def _find(self, words: Collection[str]) -> dict[str, bytes]:
        found = self._find_together(words, self._lengths) if self._lengths is not None else {}
        alone = [word for word in words if word not in found]
        return found | self._find_alone(alone) if alone else found

    def _find_alone(self, words: list[str]) -> dict[str, bytes]:
        encodings = self._backend.encode_batch_fast(words, add_special_tokens=False)
        return {word: array("I", each.ids).tobytes() for word, each in zip(words, encodings, strict=True)}

    def _find_together(self, words: Iterable[str], lengths: "_Lengths") -> dict[str, bytes]:
        """Find the ids of many words in those of one text, which takes half as long as the words one by one."""
        if not (begun := [word for word in words if word[0] == " "]):
            return {}
        listed = [part for word in begun for part in ((word,) if word[-1] in _VISIBLE else (word, _BETWEEN))]
        text = "".join(listed)
        if not is_normalized("NFC", text) or self._split(text) != listed:
            return {}
        (encoding,) = self._backend.encode_batch_fast([text], add_special_tokens=False)
        ids = array("I", encoding.ids)
        ends = {end: count for count, end in enumerate(accumulate(map(lengths.__getitem__, ids)), 1)}
        stops = [ends.get(end) for end in accumulate(len(each.encode()) for each in listed)]
        if stops[-1] != len(ids) or None in stops:
            return {}
        starts = [0, *stops]
        return {word: ids[start:stop].tobytes() for word, start, stop in zip(listed, starts, stops, strict=False)}

    def _joined(self, words: Words, add_special_tokens: bool, known: Mapping[str, bytes]) -> "list[array[int]]":
        before, after = self._around if add_special_tokens else (b"", b"")
        ids_of = known.__getitem__
        return [array("I", b"".join([before, *map(ids_of, each), after])) for each in words]

    def _drop(self, known: dict[str, bytes]) -> None:
        """Drop the older half of the words, and long ones: the usual ones come back."""
        entries = list(known.items())  # in one step, since other threads add words
        self._known = kept = {word: ids for word, ids in entries[len(entries) // 2 :] if len(word) <= _LONG}
        self._chars = sum(map(len, kept))


def word_ids_of(backend: Tokenizer) -> WordIds | None:
    """Return the words of a tokenizer; None if their ids may depend on each other."""
    split = split_of(backend)
    if split is None:
        return None
    around, bare = (backend.encode("a", add_special_tokens=special).ids for special in (True, False))
    begin = next((i for i in range(len(around)) if around[i : i + len(bare)] == bare), None)
    if begin is None or not bare:
        return None
    words = WordIds(backend, split, around[:begin], around[begin + len(bare) :])
    for special in (True, False):
        for text in _PROBES:
            (ids,) = words.encode(words.split([text]), special)
            if ids.tolist() != backend.encode(text, add_special_tokens=special).ids:
                return None
    return words
