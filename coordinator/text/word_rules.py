"""Where the texts of a tokenizer can be cut into words that have their ids by themselves.

**BERT's** tokenizers normalize each character by itself, or with the combining characters behind it, and drop
whitespace, at which they split. So what stands before a space changes nothing behind it.

**Byte-level BPE**, which most models have, splits a text by regular expressions before it merges bytes. Any text can be
cut before a space that ASCII letters or punctuation follow, if

* no match of an expression that begins before the space contains it, unless it is a run of whitespace: in its
  alternatives only an optional first character may match a space;
* a run of whitespace leaves its last space to what follows (`\\s+(?!\\S)`), and ends where it does if the text does;
* any whitespace is matched, so that a match begins at the space;
* nothing normalizes a space, or an ASCII character that another one follows: NFC does not;
* each part of a text that one expression split off is split by the next one alone, and those before the one that
  matches whitespace match at most numbers, or characters beyond ASCII.

Where these are split off first, or an added token is, whitespace before them is a run that does not know them. So
before a space that another letter, a digit or the beginning of such a token follows, a text can be cut if no whitespace
is before the space.

In either case no added token contains whitespace or takes it in from its surroundings.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from unicodedata import normalize

from tokenizers import Tokenizer
from tokenizers.models import BPE, WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

WordSplit = Callable[[str], list[str]]
"""Returns the words of a text."""

_BERT_WORD = re.compile(r".[^ ]*", re.DOTALL)
_SPACELESS = (
    r"(?:\\p\{[LMNPS][a-z]?\}"
    r"|\[(?:\\p\{[LMNPS][a-z]?\}|\\[rn\-\[\]\\]|[A-Za-z]-[A-Za-z]|[^\s\\\[\]\x00-\x20^-]|(?<!\[)\^)+\]"
    r"|\[\^\\s(?:\\p\{[LMNPS][a-z]?\})*\])"
)
"""Matches the expression of a character that is not whitespace, or is a line break."""
_CONTRACTIONS = r"\(\?i:'s\|'t\|'re\|'ve\|'m\|'ll\|'d\)"
_ALTERNATIVE = (
    rf"(?:(?: \?|\[\^\\r\\n(?:\\p\{{[LMNPS]\}})+\]\?)?(?:{_SPACELESS}(?:[+*?]|\{{\d,\d\}})?)+(?:{_CONTRACTIONS}\?)?"
    rf"|{_CONTRACTIONS}|\\s\*\[\\r\\n\]\+)"
)
_ANY_SPACE = r"\\s\+\(\?!\\S\)\|\\s\+"
_RARE = re.compile(r"\\p\{N\}(?:\+|\{\d,\d\})?|\[[^\x00-\x7f](?:-?[^\x00-\x7f])*\]\+")
"""Matches an expression of numbers, or of characters beyond ASCII."""
_EXPRESSION = re.compile(rf"(?:{_ALTERNATIVE}(?:\|{_ALTERNATIVE})*)(?P<spaces>\|{_ANY_SPACE})?")


def split_of(backend: Tokenizer) -> WordSplit | None:
    """Return what cuts a tokenizer's texts into words; None if their ids may depend on each other."""
    if backend.truncation or backend.padding or backend.encode_special_tokens:
        return None
    for token in backend.get_added_tokens_decoder().values():
        if token.lstrip or token.rstrip or token.single_word or any(map(str.isspace, token.content)):
            return None
    if _is_bert(backend):
        return _BERT_WORD.findall
    return _words_of(backend).findall if _is_byte_level(backend) else None


def _words_of(backend: Tokenizer) -> re.Pattern[str]:
    """Return what matches a word, with the space before it, and the whitespace behind it up to the next word's."""
    added = [token.content for token in backend.get_added_tokens_decoder().values()]
    begins = {text[:1] for each in added for text in (each, normalize("NFC", each))}
    plain = [chr(code) for code in range(ord("!"), ord("~") + 1) if not chr(code).isdigit() and chr(code) not in begins]
    after_any = f"[{re.escape(''.join(plain))}](?![^\\x00-\\x7f])" if plain else "(?!)"
    return re.compile(rf".[^ ]*+(?: (?!{after_any})(?:(?<![\w!-~] )|(?![\w!-~]))[^ ]*+)*+", re.DOTALL)


def _is_bert(backend: Tokenizer) -> bool:
    parts = (backend.model, WordPiece), (backend.normalizer, BertNormalizer), (backend.pre_tokenizer, BertPreTokenizer)
    added = backend.get_added_tokens_decoder().values()
    return all(isinstance(part, kind) for part, kind in parts) and all(token.content.isascii() for token in added)


def _is_byte_level(backend: Tokenizer) -> bool:
    if not isinstance(backend.model, BPE) or backend.model.dropout:
        return False
    if not all(part["type"] == "NFC" for part in component_parts(backend.normalizer, "normalizers")):
        return False
    parts = [*component_parts(backend.pre_tokenizer, "pretokenizers")]
    if all(part["type"] != "ByteLevel" for part in parts):
        return False
    first = next((number for number, part in enumerate(parts) if _matches_spaces(part)), None)
    if first is None:
        return False
    return all(map(_matches_rarely, parts[:first])) and all(map(_keeps_words, parts[first:]))


def component_parts(component: Any, of_sequence: str) -> Iterator[Mapping[str, Any]]:
    """Yield the parts of a normalizer or a pre-tokenizer, as in tokenizer.json."""
    if component is not None:
        state = json.loads(component.__getstate__())
        yield from state[of_sequence] if state["type"] == "Sequence" else [state]


def _matches_spaces(part: Mapping[str, Any]) -> bool:
    if part["type"] == "ByteLevel":
        return bool(part["use_regex"] and not part["add_prefix_space"])
    match = _EXPRESSION.fullmatch(_expression(part))
    return match is not None and match["spaces"] is not None


def _matches_rarely(part: Mapping[str, Any]) -> bool:
    return part["type"] == "Digits" or _RARE.fullmatch(_expression(part)) is not None


def _keeps_words(part: Mapping[str, Any]) -> bool:
    if part["type"] == "ByteLevel":
        return not part["add_prefix_space"]
    return part["type"] == "Digits" or _EXPRESSION.fullmatch(_expression(part)) is not None


def _expression(part: Mapping[str, Any]) -> str:
    """Return the expression whose matches a part splits off; empty if it is no such part."""
    if part["type"] != "Split" or part["behavior"] != "Isolated" or part["invert"]:
        return ""
    return str(part["pattern"].get("Regex", "")).replace("\r", r"\r").replace("\n", r"\n")
