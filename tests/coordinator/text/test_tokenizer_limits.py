"""What tokenizers of workers may not do with a text, and that real ones do none of it."""

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from tokenizers import Tokenizer

from tokenwire.coordinator.text.tokenizer import ModelTokenizer
from tokenwire.coordinator.text.tokenizer_limits import MOST_NORMALIZED, check_backend
from tokenwire.errors import InvalidRequest

_NO_ENTRIES = (1024).to_bytes(4, "little") + bytes(1024)
"""The beginning of a table of SentencePiece's: its size, and a trie that finds nothing."""
_ALBERT = [
    {"type": "Replace", "pattern": {"String": "``"}, "content": '"'},
    {"type": "NFKD"},
    {"type": "StripAccents"},
    {"type": "Lowercase"},
    {
        "type": "Precompiled",
        "precompiled_charsmap": base64.b64encode(_NO_ENTRIES + b"ab\0" + "صلى الله عليه وسلم".encode()).decode(),
    },
    {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "},
]


def tokenizer_json(**parts: Any) -> bytes:
    """Return a tokenizer of letters, with these parts."""
    vocabulary = {chr(letter): letter for letter in range(32, 127)}
    model = {"type": "WordLevel", "vocab": vocabulary, "unk_token": "!"}
    return json.dumps({"model": model, **parts}).encode()


def replaced(pattern: str, content: str, times: int = 1) -> Mapping[str, Any]:
    """Return a normalizer that replaces a text, several times."""
    step = {"type": "Replace", "pattern": {"String": pattern}, "content": content}
    return {"type": "Sequence", "normalizers": [step] * times}


def a_sequence_of(field: str, *steps: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return steps as one."""
    return {"type": "Sequence", field: steps}


def template(*pieces: str, ids: int = 1) -> Mapping[str, Any]:
    """Return a post-processor that puts texts, `A` or `B`, and a token of some ids together."""
    named = [
        {"Sequence": {"id": piece, "type_id": 0}} if piece in "AB" else {"SpecialToken": {"id": piece, "type_id": 0}}
        for piece in pieces
    ]
    token = {"id": "<s>", "ids": [65] * ids, "tokens": ["A"] * ids}
    pair = [{"Sequence": {"id": piece, "type_id": 0}} for piece in "AB"]
    return {"type": "TemplateProcessing", "single": named, "pair": pair, "special_tokens": {"<s>": token}}


_BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
_TABLE = base64.b64encode(_NO_ENTRIES + b"x" * 1000).decode()
_WORDS = {"type": "WordPiece", "vocab": {"!": 0}, "unk_token": "!", "continuing_subword_prefix": "##"}
HOSTILE: dict[str, tuple[Mapping[str, Any], str]] = {
    "a chain that multiplies": ({"normalizer": replaced("e", "e" * 16, times=6)}, "by 16,777,216 in its normalizer"),
    "one long replacement": ({"normalizer": replaced("e", "e" * 1000)}, "by 1,000 in its normalizer"),
    "an expression": (
        {"normalizer": {"type": "Replace", "pattern": {"Regex": ""}, "content": "e" * 999}},
        "by 1,000 in its normalizer",
    ),
    "nested chains": (
        {"normalizer": a_sequence_of("normalizers", *[replaced("e", "e" * 16, times=2)] * 2)},
        "by 65,536 in its normalizer",
    ),
    "long texts before each": ({"normalizer": {"type": "Prepend", "prepend": "e" * 999}}, "by 1,000 in its normalizer"),
    "a table": ({"normalizer": {"type": "Precompiled", "precompiled_charsmap": _TABLE}}, "by 1,000 in its normalizer"),
    "very many steps": ({"normalizer": replaced("a", "b", times=33)}, "more than 32 steps in its normalizer"),
    "bytes of bytes": ({"pre_tokenizer": a_sequence_of("pretokenizers", *[_BYTES] * 3)}, "by 64 in its pre_tokenizer"),
    "a decoder": (
        {"decoder": {"type": "Replace", "pattern": {"String": "e"}, "content": "e" * 99}},
        "by 99 in its decoder",
    ),
    "texts twice": ({"post_processor": template("A", "A")}, "repeats a text in its post_processor"),
    "many tokens": ({"post_processor": template("<s>", "A", ids=1025)}, "adds 1,025 tokens in its post_processor"),
    "long words": (
        {"model": _WORDS | {"max_input_chars_per_word": 1001}},
        "words of more than 1,000 characters",
    ),
    "a long affix": (
        {"model": {"type": "BPE", "vocab": {"!": 0}, "merges": [], "end_of_word_suffix": "e" * 65}},
        "more than 64 characters in its end_of_word_suffix",
    ),
    "an expression without an end": (
        {"normalizer": {"type": "Replace", "pattern": {"Regex": "(?:(?:[a-z ]|[a-z ])+)+!"}, "content": "x"}},
        "repeats a group",
    ),
    "a long token": (
        {"model": {"type": "WordLevel", "vocab": {"!": 0, "e" * 4097: 1}, "unk_token": "!"}},
        "a token of 4,097 characters",
    ),
}


@pytest.mark.parametrize(("parts", "message"), HOSTILE.values(), ids=HOSTILE.keys())
def test_a_tokenizer_of_a_worker_multiplies_no_text(parts: Mapping[str, Any], message: str) -> None:
    """Nor takes long; a coordinator's own may."""
    files = {"tokenizer.json": tokenizer_json(**parts)}
    with pytest.raises(InvalidRequest, match=message):
        ModelTokenizer.from_files(files, trusted=False)


@pytest.mark.parametrize(
    "normalizers",
    [
        _ALBERT,
        [{"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}],
        [{"type": "NFC"}],
        [],
    ],
    ids=["ALBERT", "Llama 2", "Qwen", "none"],
)
def test_chains_of_real_families_are_accepted(normalizers: Sequence[Mapping[str, Any]]) -> None:
    """As far as they are known."""
    check_backend(Tokenizer.from_buffer(tokenizer_json(normalizer=a_sequence_of("normalizers", *normalizers))))


def test_real_tokenizers_are_accepted(npm_tokenizer: ModelTokenizer) -> None:
    """Without much time."""
    assert check_backend(npm_tokenizer.backend) >= 2**25 // 4


def test_texts_that_may_become_too_long_are_rejected() -> None:
    """By the most that they may become: what encodes them takes memory for each character."""
    files = {"tokenizer.json": tokenizer_json(normalizer=replaced("e", "e" * MOST_NORMALIZED))}
    tokenizer = ModelTokenizer.from_files(files, trusted=False)
    assert len(tokenizer.encode("a" * 1000, False)) == 1
    with pytest.raises(InvalidRequest, match="more than 174,762 characters"):
        tokenizer.encode("a" * 174_763, False)
