"""Encodes texts word by word where no word's ids depend on others, as with BERT's tokenizers: most are known already.

Why the ids of a text's words are those of the text: such a tokenizer normalizes each character by itself, or with the
combining characters behind it, and drops whitespace, at which it splits. So what stands before a space changes nothing
behind it, as long as no added token has a space itself.
"""

from collections.abc import Mapping, Sequence
from itertools import chain

from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

_MOST_WORDS = 32 * 1024
_MOST_CHARS = 32
"""Of a word that is kept: with both bounds all of them take less than 32 MB."""
_PROBE = "A [MASK] of caf\u00e9s, \u6771\u4eac 3.5%  and\tsnowmen\u2603"


class WordIds:
    """The ids of words, of a tokenizer that has them independently."""

    def __init__(self, backend: Tokenizer, before: Sequence[int], after: Sequence[int]) -> None:
        """`before` and `after`: special ids around each text."""
        self._backend = backend
        self._before, self._after = list(before), list(after)
        self._known: dict[str, list[int]] = {}

    def unknown(self, texts: Sequence[str]) -> list[str]:
        """Return the words of these texts whose ids have to be found first."""
        words = set[str]().union(*(text.split(" ") for text in texts))
        return list(words.difference(self._known))

    def find(self, words: list[str]) -> dict[str, list[int]]:
        """Return the ids of words. Raises TypeError for one without a UTF-8 encoding."""
        encodings = self._backend.encode_batch_fast(words, add_special_tokens=False)
        return {word: encoding.ids for word, encoding in zip(words, encodings, strict=True)}

    def encode(self, texts: Sequence[str], add_special_tokens: bool, found: Mapping[str, list[int]]) -> list[list[int]]:
        """Return the ids of texts whose unknown words were found, and keep these.

        Raises KeyError if a word that was known is not kept any more.
        """
        known = self._known
        before, after = (self._before, self._after) if add_special_tokens else ([], [])
        known.update(found)
        try:
            ids_of = known.__getitem__
            return [[*before, *chain.from_iterable(map(ids_of, text.split(" "))), *after] for text in texts]
        finally:
            self._drop(found)

    def _drop(self, found: Mapping[str, list[int]]) -> None:
        """Drop what is not kept of words that were found: those that are long, and all if they are too many."""
        if len(self._known) > _MOST_WORDS:
            self._known = {}
        for word in found:
            if len(word) > _MOST_CHARS:
                self._known.pop(word, None)


def word_ids_of(backend: Tokenizer) -> WordIds | None:
    """Return the words of a tokenizer; None if their ids may depend on each other."""
    parts = (backend.model, WordPiece), (backend.normalizer, BertNormalizer), (backend.pre_tokenizer, BertPreTokenizer)
    if not all(isinstance(part, kind) for part, kind in parts) or backend.encode_special_tokens:
        return None
    added = [token.content for token in backend.get_added_tokens_decoder().values()]
    if (
        any(not text.isascii() or any(map(str.isspace, text)) for text in added)
        or backend.truncation
        or backend.padding
    ):
        return None
    around, bare = (backend.encode("a", add_special_tokens=special).ids for special in (True, False))
    begin = next((i for i in range(len(around)) if around[i : i + len(bare)] == bare), None)
    if begin is None or not bare:
        return None
    words = WordIds(backend, around[:begin], around[begin + len(bare) :])
    for special in (True, False):
        for text in ("", _PROBE):
            found = words.find(words.unknown([text]))
            if words.encode([text], special, found) != [backend.encode(text, add_special_tokens=special).ids]:
                return None
    return words
