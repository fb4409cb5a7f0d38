"""What a tokenizer that a worker brings may make of a text: real ones multiply its length by little, and take no time.

Each step of a chain is counted as what it may make of one character at worst, so that no text has to be found for it.
"""

import base64
import json
import time
from collections.abc import Callable, Iterator, Mapping
from math import prod
from typing import Any

from tokenizers import Tokenizer

from tokenwire.coordinator.text.expression_limits import check_expression
from tokenwire.errors import InvalidRequest

MOST_NORMALIZED = 192
"""Characters that one may become. ALBERT's chain counts as 180, that of T5 and XLM-R as 36, others as less than ten."""
_MOST_PRE_TOKENIZED = _MOST_DECODED = 16
_MOST_STEPS = 32
_MOST_CHARS = 2**25
"""Of all normalized texts together: what encodes them takes some dozen bytes for each."""
_MOST_CONFIG_CHARS = 2 * 2**20
"""Of a chain as JSON. A table of SentencePiece's has 0.3 million."""
_MOST_ADDED_IDS = 1024
_LONGEST_TOKEN = 4096
_LONGEST_WORD = 1000
"""Characters of a word that WordPiece takes apart, which takes their square; usual are 100."""
_LONGEST_AFFIX = 64
_MOST_SAMPLED, _LONGEST_SAMPLE_S = 32, 1.0
"""Tokens for a character of the sample, and how long it may take: a millisecond is usual."""
_SAMPLE = (
    "The quick brown fox jumps over the lazy dog; 1234567890 (3.14159) [it's] {we'll} <they're>, don't you?\n"
    "def f(x: int) -> str:\n    return f'{x!r:>20}'  # naïve café, “quotes”…\t\r\n"
    "我们来试试 日本語テスト 한국어 Привет مرحبا 😀 ﷺ ﬁ " + "a" * 40 + " " * 40 + "-" * 40
)
_Step = Mapping[str, Any]


def check_backend(backend: Tokenizer) -> int:
    """Check the chains of a tokenizer, and try it; return how many characters it may encode at a time.

    Raises InvalidRequest.
    """
    grows = _check_chain("normalizer", backend.normalizer, "normalizers", _normalized, MOST_NORMALIZED)
    _check_chain("pre_tokenizer", backend.pre_tokenizer, "pretokenizers", _pre_tokenized, _MOST_PRE_TOKENIZED)
    _check_chain("decoder", backend.decoder, "decoders", _decoded, _MOST_DECODED)
    _check_post_processor(backend)
    _check_model(backend)
    _try(backend)
    return int(_MOST_CHARS / grows)


def check_longest_token(characters: int) -> None:
    """Check the length of a tokenizer's longest token. Raises InvalidRequest."""
    if characters > _LONGEST_TOKEN:
        raise _refusal(f"has a token of {characters:,} characters: at most {_LONGEST_TOKEN:,} are allowed")


def _check_chain(name: str, part: Any, field: str, growth: Callable[[_Step], float], most: float) -> float:
    steps = list(_steps(name, part, field))
    for step in steps:
        expression = (step.get("pattern") or {}).get("Regex")
        if expression is not None:
            check_expression(expression)
    grows = prod(growth(step) for step in steps)
    if grows > most:
        raise _refusal(f"may multiply the length of a text by {grows:,.0f} in its {name}: at most {most} are allowed")
    return grows


def _steps(name: str, part: Any, field: str) -> Iterator[_Step]:
    """Yield the steps of a part, of nested sequences too."""
    if part is None:
        return
    state = part.__getstate__()
    if len(state) > _MOST_CONFIG_CHARS:
        raise _refusal(f"has {len(state):,} characters in its {name}: at most {_MOST_CONFIG_CHARS:,} are allowed")
    waiting, count = [json.loads(state)], 0
    while waiting:
        step = waiting.pop()
        if step["type"] == "Sequence":
            waiting += reversed(step[field])
            continue
        count += 1
        if count > _MOST_STEPS:
            raise _refusal(f"has more than {_MOST_STEPS} steps in its {name}")
        yield step


def _normalized(step: _Step) -> float:
    match step["type"]:
        case "Replace":
            return _replaced(step)
        case "Prepend":  # to each text between two added tokens
            return 1 + len(step["prepend"])
        case "Precompiled":
            return _longest_of_table(step["precompiled_charsmap"])
        case "NFKC" | "NFKD":  # the same letter comes up to five times, and as itself only once
            return 5
        case "NFC" | "NFD" | "ByteLevel":
            return 4
        case "BertNormalizer":  # spaces around ideographs
            return 3
    return 1


def _pre_tokenized(step: _Step) -> float:
    match step["type"]:
        case "ByteLevel":
            return 4
        case "Metaspace":
            return 2
    return 1


def _decoded(step: _Step) -> float:
    match step["type"]:
        case "Replace":
            return _replaced(step)
        case "WordPiece" | "BPEDecoder":  # a space before or after each
            return 2
    return 1


def _replaced(step: _Step) -> float:
    content, pattern = len(step["content"]), step["pattern"].get("String")
    # An expression may match nothing, before each character.
    return max(1.0, content / len(pattern)) if pattern else 1 + content


def _longest_of_table(table: str) -> int:
    """Return the most characters that SentencePiece's table has for one: a trie, and texts with zeros between them."""
    data = base64.b64decode(table)
    texts = data[4 + int.from_bytes(data[:4], "little") :]
    return max([len(text.decode(errors="replace")) for text in texts.split(b"\0")], default=1) or 1


def _check_post_processor(backend: Tokenizer) -> None:
    added = 0
    for step in _steps("post_processor", backend.post_processor, "processors"):
        if step["type"] != "TemplateProcessing":
            continue
        ids = {name: len(token["ids"]) for name, token in step["special_tokens"].items()}
        for template in (step["single"], step["pair"]):
            copies = [piece["Sequence"]["id"] for piece in template if "Sequence" in piece]
            if len(copies) != len(set(copies)):
                raise _refusal("repeats a text in its post_processor")
            added += sum(ids.get(piece["SpecialToken"]["id"], 0) for piece in template if "SpecialToken" in piece)
    if added > _MOST_ADDED_IDS:
        raise _refusal(f"adds {added:,} tokens in its post_processor: at most {_MOST_ADDED_IDS:,} are allowed")


def _check_model(backend: Tokenizer) -> None:
    if getattr(backend.model, "max_input_chars_per_word", 0) > _LONGEST_WORD:
        raise _refusal(f"takes words of more than {_LONGEST_WORD:,} characters apart")
    for name in ("continuing_subword_prefix", "end_of_word_suffix"):
        if len(getattr(backend.model, name, None) or "") > _LONGEST_AFFIX:
            raise _refusal(f"has more than {_LONGEST_AFFIX} characters in its {name}")


def _try(backend: Tokenizer) -> None:
    began_at = time.monotonic()
    try:
        (encoding,) = backend.encode_batch_fast([_SAMPLE], add_special_tokens=False)
        backend.decode(encoding.ids)
    except BaseException as error:  # an expression that takes too long is a panic of the library, no Exception
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise
        raise _refusal(f"fails on a text of {len(_SAMPLE)} characters: {error}") from error
    if len(encoding.ids) > _MOST_SAMPLED * len(_SAMPLE):
        raise _refusal(f"makes {len(encoding.ids):,} tokens of a text of {len(_SAMPLE)} characters")
    if (took_s := time.monotonic() - began_at) > _LONGEST_SAMPLE_S:
        raise _refusal(f"takes {took_s:.1f} s for a text of {len(_SAMPLE)} characters")


def _refusal(why: str) -> InvalidRequest:
    return InvalidRequest(f"The tokenizer {why}, so it is not used.")
