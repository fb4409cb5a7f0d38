"""The tokenizer, built from a model's files with only the `tokenizers` library."""

import json
import re
from array import array
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from tokenizers import Tokenizer

from tokenwire.coordinator.text import special_tokens, token_cache
from tokenwire.coordinator.text.template.template_limits import check_templates
from tokenwire.coordinator.text.tokenizer_files import read_directory, settings_of, templates_of
from tokenwire.coordinator.text.tokenizer_limits import check_backend, check_longest_token
from tokenwire.coordinator.text.word_ids import WordIds, Words, word_ids_of
from tokenwire.errors import InvalidRequest
from tokenwire.process.batches import batches_by_size
from tokenwire.process.threads import in_thread

# Up to this many characters encoding takes less than about 2 ms, and a thread would only add to that.
INLINE_CHARS = 4096
# Up to this many characters words are looked up in less than about 2 ms; a thread would keep others from running too.
_INLINE_WORDS_CHARS = 32 * 1024
# More characters are the library's: unlike what looks up words, it lets other threads run.
_WORDS_CHARS = 64 * 1024
# A new word takes as long as so many characters more.
_WORD_CHARS = 8
# What incomplete or invalid bytes decode to.
REPLACEMENT_CHARACTER = "\ufffd"

# Up to this many characters a text is encoded as a whole: looking up its pieces would take as long.
_WHOLE_CHARS = 128
# Up to this many characters cutting a text and looking up its pieces takes less time than a thread.
_PART_CHARS = 512 * 1024
_LOOKUP_CHARS = 65_536

# Tokens of single bytes; runs of them decode together.
_BYTE_TOKEN = re.compile("<0x[0-9A-Fa-f]{2}>")

# Texts of tokens that are kept: more than most vocabularies have. Each takes about 150 bytes.
_MOST_TEXTS = 262_144

# Up to so many times as many ids as tokens, ids are looked up one by one.
_MOST_SPARSE = 2


class ModelTokenizer:
    """Converts text to ids and back. Thread-safe."""

    def __init__(self, backend: Tokenizer, config: Mapping[str, Any], most_chars: int | None = None) -> None:
        """`most_chars` of texts are encoded at a time. Raises InvalidRequest, if so, for a token that is too long."""
        self.backend = backend
        self.special_tokens: dict[str, str] = special_tokens.named(config)
        self.chat_template: str | dict[str, str] | None = config.get("chat_template")
        self.added_token_ids: dict[int, str] = {
            index: token.content for index, token in backend.get_added_tokens_decoder().items()
        }
        self.decodes_additively = _decodes_additively(backend)
        """Whether decode(a + b) == decode(a) + decode(b) if b starts_text and no character is split."""
        self.max_chars_per_token, self.largest_id = _extent(backend)
        """Length of the longest token: text longer than n times this has more than n tokens. The largest id of any."""
        self._most_chars = most_chars
        if most_chars is not None:
            check_longest_token(self.max_chars_per_token)
        self._cutting_tokens = token_cache.cutting_tokens(backend, self._template_tokens())
        self._cache = token_cache.TokenCache()
        self._words = word_ids_of(backend)
        self._cuts: dict[str, bool] = {}
        self._starts: dict[tuple[int, bool], bool] = {}
        self.texts = {skips: _IndependentTexts(self, skips) for skips in (True, False)}
        """Texts of tokens that need no decoding in their place, without special ones and with them."""

    @classmethod
    def from_files(cls, files: Mapping[str, bytes], trusted: bool = True) -> Self:
        """Build from file contents by name: tokenizer.json and optional others. Raises InvalidRequest."""
        if "tokenizer.json" not in files:
            raise InvalidRequest(f"The tokenizer has no tokenizer.json (only {', '.join(sorted(files)) or 'nothing'}).")
        config = settings_of(files)
        try:
            backend = Tokenizer.from_buffer(files["tokenizer.json"])
        except Exception as error:  # the library raises plain Exception, ValueError or TypeError
            raise InvalidRequest(f"The tokenizer.json cannot be read: {error}") from error
        # Both are left over from earlier calls; neither is part of a model's tokenization.
        backend.no_truncation()
        backend.no_padding()
        backend.encode_special_tokens = bool(config.get("split_special_tokens", False))
        most_chars = None
        if not trusted:
            most_chars = check_backend(backend)
            check_templates(templates_of(config["chat_template"]), len(backend.get_added_tokens_decoder()))
        special_tokens.register(backend, config)
        return cls(backend, config, most_chars)

    @classmethod
    def from_directory(cls, path: str | Path) -> Self:
        """Build from a model's directory. Raises InvalidRequest that names a missing file."""
        return cls.from_files(read_directory(path))

    @cached_property
    def special_token_ids(self) -> frozenset[int]:
        """The ids that `skip_special_tokens` skips."""
        return frozenset(index for index, token in self.backend.get_added_tokens_decoder().items() if token.special)

    def is_end(self, token_id: int) -> bool:
        """Return whether a token may be an end of replies: a special one, or EOS, which some models don't mark so."""
        text = self.added_token_ids.get(token_id)
        return token_id in self.special_token_ids or (text is not None and text == self.special_tokens.get("eos_token"))

    @cached_property
    def visible_ids(self) -> list[int]:
        """The ids of some visible text."""
        return self.backend.encode("a", add_special_tokens=False).ids

    @cached_property
    def added_tokens(self) -> re.Pattern[str]:
        """Matches any added token, preferring the longest."""
        longest_first = sorted(self.added_token_ids.values(), key=len, reverse=True)
        return re.compile("|".join(map(re.escape, longest_first)) or "(?!)")

    def can_cut_before(self, token: str) -> bool:
        """Return whether any text may be cut before an added token without a change of ids."""
        if token not in self._cuts:
            self._cuts[token] = bool(token_cache.cutting_tokens(self.backend, [token]))
        return self._cuts[token]

    def starts_text(self, token_id: int, skip_special_tokens: bool) -> bool:
        """Return whether a token has text of its own, independent of earlier tokens."""
        key = token_id, skip_special_tokens
        starts = self._starts.get(key)
        if starts is None:
            token = self.backend.id_to_token(token_id)
            is_part = token is None or _BYTE_TOKEN.fullmatch(token) is not None
            starts = self._starts[key] = not is_part and self.decode([token_id], skip_special_tokens) != ""
        return starts

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Encode text to ids; `add_special_tokens` applies the post-processor, which adds BOS and the like."""
        return list(self._encode(text, add_special_tokens))

    def _encode(self, text: str, add_special_tokens: bool) -> Sequence[int]:
        if add_special_tokens or not self._cutting_tokens or len(text) <= _WHOLE_CHARS:
            (ids,) = self._encode_all([text], add_special_tokens)
            return ids
        return self._encode_pieces(token_cache.cut(text, self._cutting_tokens))

    async def encode_async(self, text: str, add_special_tokens: bool = True) -> Sequence[int]:
        """Encode text to ids without blocking the event loop for long."""
        if len(text) <= INLINE_CHARS:
            return self._encode(text, add_special_tokens)
        if add_special_tokens or len(text) > _LOOKUP_CHARS:
            return await in_thread(self._encode, text, add_special_tokens)
        pieces = token_cache.cut(text, self._cutting_tokens)
        known = self._cache.known(pieces)
        new = [piece for piece in pieces if piece not in known]
        return self._cache.join(pieces, known, await self.encode_many_async(new, False))

    async def encode_many_async(self, texts: list[str], add_special_tokens: bool = True) -> list[Sequence[int]]:
        """Encode texts to ids, together, without blocking the event loop for long."""
        chars = sum(map(len, texts))
        if chars <= INLINE_CHARS:
            return self._encode_all(texts, add_special_tokens)
        if self._words is not None and chars <= _INLINE_WORDS_CHARS:
            return await self._encode_words(texts, add_special_tokens, self._words)
        return await in_thread(self._encode_all, texts, add_special_tokens)

    async def _encode_words(self, texts: list[str], add_special_tokens: bool, words: WordIds) -> list[Sequence[int]]:
        self._check_length(texts)
        found = words.split(texts)
        unknown = words.unknown(found)
        if sum(map(len, unknown)) + _WORD_CHARS * len(unknown) <= INLINE_CHARS:
            return self._encode_all(texts, add_special_tokens, found)
        return await in_thread(self._encode_all, texts, add_special_tokens, found)

    def _encode_all(
        self, texts: list[str], add_special_tokens: bool, found: Words | None = None
    ) -> list[Sequence[int]]:
        self._check_length(texts)
        try:
            if self._words is not None and sum(map(len, texts)) <= _WORDS_CHARS:
                return [*self._words.encode(found or self._words.split(texts), add_special_tokens)]
            # Unlike `encode`, the batch form releases the GIL, and the fast one skips offsets.
            encodings = self.backend.encode_batch_fast(texts, add_special_tokens=add_special_tokens)
        except TypeError as error:
            raise _unpaired() from error
        return [encoding.ids for encoding in encodings]

    def _check_length(self, texts: list[str]) -> None:
        if self._most_chars is not None and sum(map(len, texts)) > self._most_chars:
            raise InvalidRequest(f"The prompt has more than {self._most_chars:,} characters.")

    def _encode_in_parts(self, texts: list[str]) -> Iterator[Sequence[int]]:
        """Encode texts, some at a time: until they are ids, encodings take a hundred bytes for each token."""
        for part in batches_by_size(texts, len, _PART_CHARS):
            yield from self._encode_all(part, False)

    def _encode_pieces(self, pieces: Sequence[str]) -> "array[int]":
        """Encode the pieces of a rendered conversation, of which all but the last may be cached."""
        known = self._cache.known(pieces)
        return self._cache.join(pieces, known, self._encode_in_parts([each for each in pieces if each not in known]))

    def _template_tokens(self) -> list[str]:
        templates = templates_of(self.chat_template)
        named = set(self.special_tokens.values())
        # Tokens that the template inserts around messages, by id: those that start a message usually have low ids.
        return [
            text
            for _, text in sorted(self.added_token_ids.items())
            if text in named or any(text in template for template in templates)
        ]

    def decode(self, token_ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """Decode a whole sequence of ids to text."""
        return self.backend.decode(token_ids, skip_special_tokens=skip_special_tokens)

    def decode_after_text(self, token_ids: Sequence[int], skip_special_tokens: bool) -> str:
        """Decode ids as they are after visible text: some decoders treat the beginning of a text specially."""
        before = self.visible_ids
        text = self.decode([*before, *token_ids], skip_special_tokens)
        return text[len(self.decode(before, skip_special_tokens)) :]

    async def decode_async(self, token_ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """Decode a whole sequence of ids to text without blocking the event loop for long."""
        if len(token_ids) <= INLINE_CHARS:
            return self.decode(token_ids, skip_special_tokens)
        # Unlike `decode`, the batch form releases the GIL.
        (text,) = await in_thread(self.backend.decode_batch, [token_ids], skip_special_tokens=skip_special_tokens)
        return text

    def token_to_str(self, token_id: int) -> str | None:
        """Return a token's vocabulary entry, None for an id outside the vocabulary."""
        return self.backend.id_to_token(token_id)


class _IndependentTexts(dict[int, str]):
    """Texts by token id. Empty for a token whose text depends on others, as that of part of a character, or none."""

    def __init__(self, tokenizer: ModelTokenizer, skip_special_tokens: bool) -> None:
        super().__init__()
        self._tokenizer = tokenizer
        self._skips_special = skip_special_tokens

    def __missing__(self, token_id: int) -> str:
        if not isinstance(token_id, int) or not 0 <= token_id <= self._tokenizer.largest_id:
            return ""  # workers may send very many of them, of which nothing is kept
        text = self._text_of(token_id)
        if len(self) < _MOST_TEXTS:
            self[token_id] = text
        return text

    def _text_of(self, token_id: int) -> str:
        tokenizer, skips = self._tokenizer, self._skips_special
        if not tokenizer.decodes_additively or not tokenizer.starts_text(token_id, skips):
            return ""
        text = tokenizer.decode_after_text([token_id], skips)
        return "" if REPLACEMENT_CHARACTER in text else text


def _extent(backend: Tokenizer) -> tuple[int, int]:
    """Return the length of the longest token, and the largest id.

    One token at a time: to get the vocabulary takes as long as to load it, and stops all other threads meanwhile.
    """
    size = backend.get_vocab_size()
    found, longest, largest = 0, 0, 0
    for token_id in range(_MOST_SPARSE * size):
        token = backend.id_to_token(token_id)
        if token is not None:
            found, longest, largest = found + 1, max(longest, len(token)), token_id
            if found == size:
                return longest, largest
    vocabulary = backend.get_vocab()
    return max(map(len, vocabulary)), max(vocabulary.values())


def _decodes_additively(backend: Tokenizer) -> bool:
    if backend.decoder is None:
        return False
    decoder = json.loads(backend.decoder.__getstate__())
    if decoder["type"] == "ByteLevel":
        return True
    parts = decoder.get("decoders", [])
    if [part["type"] for part in parts[:3]] != ["Replace", "ByteFallback", "Fuse"]:
        return False
    # Stripping the start removes the same from a and from a + b.
    return not parts[3:] or (len(parts) == 4 and parts[3]["type"] == "Strip" and parts[3]["stop"] == 0)


def _unpaired() -> InvalidRequest:
    """Return the error for the only text without a UTF-8 encoding."""
    return InvalidRequest("The prompt contains an unpaired surrogate.")
