"""Expressions of tokenizers that workers bring."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.tokenizers import npm_tokenizer_files
from tokenwire.coordinator.text.expression_limits import check_expression
from tokenwire.errors import InvalidRequest

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
CLIP = r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"


@pytest.mark.parametrize(
    "pattern",
    [
        GPT2,
        CLIP,
        r"\d{1,3}(?=(\d{3})+(?!\d))",
        r"\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))",
        r"\s+$|\s*[\r\n]|\s+(?!\S)|\s",
        " {2,}",
    ],
)
def test_real_expressions_are_taken(pattern: str) -> None:
    """Those of well-known families."""
    check_expression(pattern)


@pytest.mark.npm
@pytest.mark.parametrize("model", ["llama3_1", "deepseek_v3", "gptoss", "mistral_nemo", "qwen3"])
def test_expressions_of_real_models_are_taken(model: str) -> None:
    """As their tokenizers have them."""
    found = list(_expressions(json.loads(npm_tokenizer_files(model)["tokenizer.json"])["pre_tokenizer"]))

    assert found
    for pattern in found:
        check_expression(pattern)


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("z*z*z*z*[QX]", "4 repetitions in a row"),
        ("z*z*[QX]", "takes .* s for"),
        ("[a-z]*[m-q]*[n-p]*!", "takes .* s for"),
        (r"[\u5000-\u5002]*[\u5002-\u6000]*!", "takes .* s for"),
        ("(a*|b)(a*|b)(a*|c)Q", "takes .* s for"),
        ("(?:z+)+[QX]", "repeats a group"),
        ("(?:zy)*(?:zy)*Q", "repeats a group"),
        ("(?:zy){9}Q", "repeats a group"),
        ("z?" * 20 + "z" * 20, "ways to repeat"),
        ("z{0,9}" * 4 + "Q", "ways to repeat"),
        ("(z|z)" * 30 + "Q", "fails on"),
        ("(z|z)" * 65, "more than 64 groups"),
        (r"(?<n>a)\k<n>", "refers to what it has matched"),
        ("a" * 8193, "8,193 characters"),
    ],
)
def test_expressions_that_may_take_very_long_are_refused(pattern: str, why: str) -> None:
    """By what they say, or by what runs of their characters take: they take turns with all other work."""
    with pytest.raises(InvalidRequest, match=why):
        check_expression(pattern)


def _expressions(part: Any) -> Iterator[str]:
    if isinstance(part, dict):
        yield from [part["Regex"]] if "Regex" in part else _expressions(list(part.values()))
    elif isinstance(part, list):
        for each in part:
            yield from _expressions(each)
