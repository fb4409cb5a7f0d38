"""Encodes texts word by word, where no word's ids depend on others: most words are known already.

Why the ids of a text's words are those of the text: see tokenwire.coordinator.text.word_rules.
"""

from array import array
from collections.abc import Iterable, Mapping, Sequence

from tokenizers import Tokenizer

from tokenwire.coordinator.text.word_rules import WordSplit, split_of

_MOST_WORDS, _MOST_CHARS = 64 * 1024, 1024 * 1024
"""Of the words that are kept: usually they take less than 16 MB."""
_LONG = 256
"""Longer words are not kept."""
_FEW, _MOSTLY, _SAMPLED = 256, 2 / 3, 16
"""Where more words than a few and most of a text's are new, texts are encoded as wholes, and some are found."""
_PROBES = ("", "A [MASK] of caf\u00e9s, \u6771\u4eac 3.5%  and\tsnowmen\u2603", " It's\n\n  12345 \r\n e\u0301 ")

Words = list[list[str]]
"""The words of each text."""


class WordIds:
    """The ids of words, of a tokenizer that has them independently. Thread-safe."""

    def __init__(self, backend: Tokenizer, split: WordSplit, before: Sequence[int], after: Sequence[int]) -> None:
        """`before` and `after`: special ids around each text."""
        self._backend = backend
        self._split = split
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
        known, different = self._known, set[str]().union(*words)
        new = list(different.difference(known))
        is_new = len(new) > max(_FEW, sum(map(len, words)) * _MOSTLY)
        found = self._find(new[: len(new) // _SAMPLED] if is_new else new)
        self._keep(known, {word: ids for word, ids in found.items() if len(word) <= _LONG})
        if not is_new:
            found |= {word: known[word] for word in different.difference(found)}
            return self._joined(words, add_special_tokens, found)
        texts = ["".join(each) for each in words]
        encodings = self._backend.encode_batch_fast(texts, add_special_tokens=add_special_tokens)
        return [array("I", each.ids) for each in encodings]

    def _find(self, words: Iterable[str]) -> dict[str, bytes]:
        encode = self._backend.encode
        return {word: array("I", encode(word, add_special_tokens=False).ids).tobytes() for word in words}

    def _joined(self, words: Words, add_special_tokens: bool, known: Mapping[str, bytes]) -> "list[array[int]]":
        before, after = self._around if add_special_tokens else (b"", b"")
        ids_of = known.__getitem__
        return [array("I", b"".join([before, *map(ids_of, each), after])) for each in words]

    def _keep(self, known: dict[str, bytes], found: Mapping[str, bytes]) -> None:
        """Keep words, and drop the older half of too many: the usual ones come back."""
        known.update(found)
        self._chars += sum(map(len, found))
        if len(known) > _MOST_WORDS or self._chars > _MOST_CHARS:
            entries = list(known.items())  # in one step, since other threads add words
            self._known = kept = dict(entries[len(entries) // 2 :])
            self._chars = sum(map(len, kept))


def word_ids_of(backend: Tokenizer) -> WordIds | None:
    """Return the words of a tokenizer; None if their ids may depend on each other."""
    split = split_of(backend)
    try:
        return None if split is None else _tried(backend, split)
    except BaseException as error:  # what a text fails on may be a panic of the library, no Exception
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise
        return None


def _tried(backend: Tokenizer, split: WordSplit) -> WordIds | None:
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
