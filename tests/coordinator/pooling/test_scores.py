"""Scores of pairs, and their order."""

from dataclasses import replace

import pytest

from tests.coordinator.fakes import served_model
from tests.coordinator.pooling.embedding import embedding_model, pooled_result
from tests.turns import TurnsOfOthers
from tokenwire.coordinator.pooling.scores import ScoredTexts, pair_scores, ranked
from tokenwire.coordinator.pooling.types import Results, TextPair
from tokenwire.coordinator.text.template.chat_template import ChatTemplate
from tokenwire.coordinator.types import ChatPrompt, TextPrompt
from tokenwire.errors import InvalidRequest, NotFound


async def test_embeddings_are_compared_by_their_angle() -> None:
    """One with all, or each with its own; a vector of zeros is like none."""
    one, other, zero = pooled_result([3.0, 4.0]), pooled_result([4.0, -3.0]), pooled_result([0.0, 0.0])

    assert await pair_scores(Results("r", [one, one, other, zero], [1] * 4), 1, 3) == [1.0, 0.0, 0.0]
    assert await pair_scores(Results("r", [one, other, one, one], [1] * 4), 2, 2) == [1.0, 0.0]
    assert ScoredTexts(["p", "q"], ["a", "b"]).inputs(embedding_model()) == [TextPrompt(each) for each in "pqab"]


async def test_a_cross_encoder_gets_pairs() -> None:
    """With a separator between both texts, or joined if it knows none."""
    texts = ScoredTexts(["q"], ["a", "b"])
    separated = embedding_model(task="classify", score="cross-encoder", separates_texts=True)

    assert texts.inputs(separated) == [TextPair("q", "a"), TextPair("q", "b")]
    assert texts.inputs(embedding_model(score="cross-encoder")) == [TextPrompt("qa"), TextPrompt("qb")]
    results = Results("r", [pooled_result([0.25]), pooled_result([0.5])], [1, 1])
    assert await pair_scores(results, 1, 2) == [0.25, 0.5]


PAIRS = "{% for role in ('query', 'document') %}{{ messages | selectattr('role', 'eq', role) | first }}{% endfor %}"


def test_only_a_template_that_the_operator_gave_for_pairs_renders_them() -> None:
    """With the request's values: those of rerankers' files are often of other models, as others given are."""
    texts, kwargs = ScoredTexts(["q"], ["a"]), {"instruction": "Be strict."}
    given, own, for_chats = (
        replace(
            embedding_model(task="classify", score="cross-encoder", separates_texts=True),
            template=ChatTemplate(source, {}, given=is_given),
        )
        for source, is_given in ((PAIRS, True), (PAIRS, False), ("{{ messages[1].content }}", True))
    )
    (pair,) = texts.inputs(given, kwargs)

    assert isinstance(pair, ChatPrompt)
    assert [dict(each) for each in pair.messages] == [
        {"role": "query", "content": "q"},
        {"role": "document", "content": "a"},
    ]
    assert (pair.options.kwargs, pair.options.add_generation_prompt) == (kwargs, False)
    (begun,) = texts.inputs(given, {"add_generation_prompt": True})
    assert isinstance(begun, ChatPrompt)
    assert (begun.options.kwargs, begun.options.add_generation_prompt) == ({}, True)
    for each in (own, for_chats):
        assert texts.inputs(each, kwargs) == [TextPair("q", "a")]


@pytest.mark.parametrize(
    "model",
    [
        served_model(),
        embedding_model(score=""),
        embedding_model(score="late-interaction"),
        embedding_model(score="cross-encoder", own_pairs=True),
    ],
)
def test_other_models_score_nothing(model: object) -> None:
    """They have no such route."""
    with pytest.raises(NotFound, match="Score API"):
        ScoredTexts(["q"], ["a"]).inputs(model)  # type: ignore[arg-type]


@pytest.mark.parametrize(("first", "second"), [(2, 3), (0, 1), (1, 0)])
def test_texts_must_pair(first: int, second: int) -> None:
    """One with all, or as many of both."""
    with pytest.raises(InvalidRequest):
        ScoredTexts(["q"] * first, ["a"] * second).check()


async def test_each_text_may_have_a_limit() -> None:
    """Below the model's context."""
    texts, model = ScoredTexts(["one two three"], ["four five", "six"]), embedding_model()

    assert await texts.cut(model, 2, 1) == ScoredTexts(["one two"], ["four", "six"])
    assert await texts.cut(model, 0, 0) == texts
    for limits in ((-1, 0), (0, 20)):
        with pytest.raises(InvalidRequest, match="max_tokens_per_"):
            await texts.cut(model, *limits)


async def test_others_have_turns_while_many_texts_are_cut_and_compared() -> None:
    """Long texts in a thread, some vectors at a time."""
    model, turns = embedding_model(), TurnsOfOthers()
    documents = ["one " * 5000] * 80
    assert (await ScoredTexts(["two"], documents).cut(model, 0, 1)).second == ["one"] * 80
    assert turns.count > 1
    before = turns.count
    vectors = [pooled_result([1.0, 1.0])] * 81
    await pair_scores(Results("r", vectors, [1] * 81), 1, 80)
    assert turns.count - before >= 10


def test_the_highest_scores_come_first() -> None:
    """Of equal ones the earlier."""
    assert ranked([0.1, 0.9, 0.9, 0.5], 0) == [1, 2, 3, 0]
    assert ranked([0.1, 0.9, 0.9, 0.5], 2) == [1, 2]
