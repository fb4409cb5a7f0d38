"""Requests of models that pool, by a name for each: what cross encoders, classifiers and adapters of embedders get."""

import random
from typing import Any

Case = tuple[str, dict[str, Any]]
"""A path, and a body."""

WORDS = (
    *("the", "quick", "brown", "fox", "naïve", "façade", "日本語", "🙂", "ranking", "RETRIEVAL", "vector,", "dog's"),
    *("(lazy)", "x", "42", "\t\n"),
)
QUERY = "Who jumps over the lazy dog?"
DOCUMENTS = ["A quick brown fox does.", "Nobody.", "", "日本語 🙂", "the dog " * 30]
LONG = " ".join(WORDS * 20)
FOX_IDS = [101, 1996, 4248, 2829, 4419, 102]
ADAPTER = "red"


def _drawn(count: int, seed: int) -> list[str]:
    source = random.Random(seed)
    return [" ".join(source.choices(WORDS, k=source.randrange(1, 40))) for _ in range(count)]


PAIR_FIELDS: dict[str, dict[str, Any]] = {
    "padded": {"padding": "max_length"},
    "padded and truncated": {"padding": "max_length", "truncate_prompt_tokens": 9},
    "not padded": {"padding": "do_not_pad"},
    "instructed": {"instruction": "Be strict."},
    "with values for a template": {"chat_template_kwargs": {"instruction": "x"}},
}
"""Fields of pairs that have an effect on inputs, or on templates for pairs."""


def _with(path: str, base: dict[str, Any], options: dict[str, dict[str, Any]]) -> dict[str, Case]:
    """Return a case for each set of options."""
    return {f"{path} {name}": (path, {**base, **fields}) for name, fields in options.items()}


def cross_encoder_cases() -> dict[str, Case]:
    """Return pairs under all names and routes, truncated, and what is not taken."""
    pairs = {"queries": QUERY, "documents": DOCUMENTS}
    ranking = {"query": QUERY, "documents": DOCUMENTS}
    long = {"queries": LONG, "documents": [LONG[::-1], "short", ""]}
    cuts: dict[str, dict[str, Any]] = {
        **{f"truncated to {length}": {"truncate_prompt_tokens": length} for length in (-1, 2, 3, 17, 64)},
        "truncated on the left": {"truncate_prompt_tokens": 20, "truncation_side": "left"},
        "truncated on the right": {"truncate_prompt_tokens": 20, "truncation_side": "right"},
        "query cut": {"max_tokens_per_query": 5, "truncate_prompt_tokens": -1},
        "both cut": {"max_tokens_per_query": 7, "max_tokens_per_doc": 5},
        "too long": {},
        "cut to more than there is room for": {"max_tokens_per_doc": 4000},
    }
    wrong: dict[str, dict[str, Any]] = {
        "no documents": {"documents": []},
        "more queries than documents": {"queries": ["a", "b", "c"], "documents": ["d", "e"]},
        "a number": {"documents": [5]},
        "truncated to more than the context": {"truncate_prompt_tokens": 4000},
    }
    return {
        "documents cut": ("/score", {"queries": QUERY, "documents": [LONG, "short", ""], "max_tokens_per_doc": 5}),
        "100 drawn pairs": ("/score", {"queries": _drawn(100, 1), "documents": _drawn(100, 2)}),
        "one with 60": ("/v1/score", {"queries": QUERY, "documents": _drawn(60, 3)}),
        "data": ("/score", {"data_1": QUERY, "data_2": DOCUMENTS[0]}),
        "text": ("/v1/score", {"text_1": [QUERY, "why"], "text_2": DOCUMENTS[:2]}),
        "items": ("/score", {"queries": [QUERY], "items": DOCUMENTS}),
        "60 ranked": ("/rerank", {"query": QUERY, "documents": _drawn(60, 4)}),
        "the best three": ("/v1/rerank", {**ranking, "top_n": 3}),
        "more than there are": ("/v2/rerank", {**ranking, "top_n": 50}),
        "one document": ("/rerank", {"query": QUERY, "documents": DOCUMENTS[0]}),
        "as a class": ("/classify", {"input": [QUERY, "why"]}),
        "as it is": ("/pooling", {"input": QUERY, "encoding_format": "base64"}),
        "a task that is not its own": ("/pooling", {"input": QUERY, "task": "token_classify"}),
        "a route of others": ("/v1/embeddings", {"input": QUERY}),
        **_with("/score", pairs, {"logits": {"use_activation": False}, "probabilities": {"use_activation": True}}),
        **_with("/rerank", ranking, {"logits": {"use_activation": False}, "top_n below 0": {"top_n": -1}}),
        **_with("/score", long, cuts),
        **_with("/score", pairs, wrong),
        **_with("/rerank", ranking, PAIR_FIELDS),
    }


def classifier_cases() -> dict[str, Case]:
    """Return texts and ids, in all encodings, truncated, and what is not taken."""
    cuts: dict[str, dict[str, Any]] = {
        **{f"truncated to {length}": {"truncate_prompt_tokens": length} for length in (-1, 1, 3, 64)},
        "truncated on the left": {"truncate_prompt_tokens": 20, "truncation_side": "left"},
        "too long": {},
    }
    forms: dict[str, dict[str, Any]] = {
        "ids": {"input": FOX_IDS},
        "lists of ids": {"input": [FOX_IDS, FOX_IDS[:3]]},
        "empty text": {"input": ""},
        "without special tokens": {"input": QUERY, "add_special_tokens": False},
        "logits": {"input": DOCUMENTS, "use_activation": False},
        "empty list": {"input": []},
        "an unknown id": {"input": [40_000]},
        "removed": {"input": QUERY, "normalize": True},
    }
    encodings = {
        f"{encoding} {dtype}": {"encoding_format": encoding, "embed_dtype": dtype, "endianness": endianness}
        for encoding, dtype, endianness in (
            ("float", "float32", "native"),
            ("base64", "float32", "native"),
            ("base64", "bfloat16", "big"),
            ("base64", "fp8_e4m3", "little"),
        )
    }
    return {
        "100 drawn texts": ("/classify", {"input": _drawn(100, 5)}),
        **_with("/classify", {"input": LONG}, cuts),
        **_with("/classify", {}, forms),
        # One text: what is computed beside it may change the last bit of a number.
        **_with("/pooling", {"input": ["wide world"]}, encodings),
        "pairs": ("/score", {"queries": QUERY, "documents": DOCUMENTS}),
        "ranks": ("/rerank", {"query": QUERY, "documents": DOCUMENTS}),
        "embeddings": ("/v1/embeddings", {"input": QUERY}),
        "removed task": ("/pooling", {"input": QUERY, "task": "score"}),
        "unknown model": ("/classify", {"input": QUERY, "model": "nobody"}),
    }


def adapter_cases() -> dict[str, Case]:
    """Return the same texts for an embedding model and for its adapter."""
    texts = ["", *_drawn(30, 6)]
    cases: dict[str, Case] = {}
    for name, fields in (("base", {}), ("adapter", {"model": ADAPTER})):
        embedding = {"input": texts, "encoding_format": "base64", **fields}
        cases[f"vectors of the {name}"] = ("/v1/embeddings", embedding)
        cases[f"one vector of the {name}"] = ("/v1/embeddings", {**embedding, "input": QUERY})
        ranking = {"query": QUERY, "documents": DOCUMENTS, **fields}
        cases |= {
            f"{what} of the {name}": case
            for what, case in _with("/rerank", ranking, {"ranks": {}, **PAIR_FIELDS}).items()
        }
    return cases
