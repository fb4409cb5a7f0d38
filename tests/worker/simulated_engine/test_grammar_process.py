"""Replies are written token by token under a mask."""

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from tests.e2e.scripted import write_model
from tokenwire.worker.simulated_engine.grammar_process import GrammarError, ReplyWriter
from tokenwire.worker.simulated_engine.model import load_model

pytestmark = pytest.mark.slow

JOB: dict[str, Any] = {
    "compact": False,
    "script": None,
    "reasons": False,
    "min_tokens": 0,
    "max_tokens": 4000,
    "permitted": [],
    "banned": [],
}


@pytest.fixture(scope="module")
def writer() -> ReplyWriter:
    """A writer with the built-in tokenizer."""
    return ReplyWriter(load_model(None, None), pytest.importorskip("xgrammar"))


def test_a_reply_depends_on_context_and_key_alone(writer: ReplyWriter) -> None:
    """What was written before makes no difference."""
    job = {**JOB, "kind": "json_object", "grammar": True, "draws": [[1, 2], [1, 3], [1, 2], [4, 2]]}
    first, key, again, context = writer.replies(job)
    assert first == again
    assert key != first != context
    assert writer.replies(job) == [first, key, again, context]


def test_what_is_free_ends(writer: ReplyWriter) -> None:
    """Any text until the end of a tag, strings and lists without a bound, and an expression with one way out."""
    tag = {"type": "tag", "begin": "<a>", "content": {"type": "any_text"}, "end": "</a>"}
    grammars = {
        "structural_tag": json.dumps({"type": "structural_tag", "format": tag}),
        "json_schema": '{"type": "array", "items": {}, "minItems": 3}',
        "regex": "[a-z]+@[a-z]+",
    }
    for kind, grammar in grammars.items():
        job = {**JOB, "kind": kind, "grammar": grammar, "draws": [[seed, 0] for seed in range(50)]}
        assert max(map(len, writer.replies(job))) < 500


def test_a_reply_that_may_reason_does_not(tmp_path: Path) -> None:
    """It ends its reasoning at once, as its own token, or parsers would take all of it for reasoning."""
    folder = write_model(tmp_path / "model")
    writer = ReplyWriter(load_model(folder, None), pytest.importorskip("xgrammar"))
    job = {**JOB, "kind": "regex", "grammar": "yes", "draws": [[0, 0]]}
    ends = Tokenizer.from_file(str(folder / "tokenizer.json")).token_to_id("</think>")

    assert writer.replies({**job, "reasons": True}) == [[ends, *b"yes"]]
    assert writer.replies({**job, "reasons": True, "max_tokens": 1}) == [[ends]]
    assert writer.replies(job) == [[*b"yes"]]


def test_a_grammar_that_the_allowed_ids_do_not_fit_is_an_error(writer: ReplyWriter) -> None:
    """At the first token, or at a later one."""
    job = {**JOB, "kind": "regex", "grammar": "ab", "draws": [[0, 0]]}
    with pytest.raises(GrammarError, match="allows no output at all"):
        writer.replies({**job, "permitted": [98]})
    with pytest.raises(GrammarError, match="allows no further token"):
        writer.replies({**job, "banned": [98]})
