"""Inputs of every kind become ids, and those that cannot be embedded are refused."""

import threading
from dataclasses import replace
from typing import Any

import pytest

from tests.coordinator.fakes import ids
from tests.coordinator.pooling.embedding import embedding_model, pooling_request
from tests.coordinator.pooling.test_pairs import bert_model
from tokenwire.coordinator.pooling.inputs import prepare_inputs
from tokenwire.coordinator.pooling.types import Input, TextPair
from tokenwire.coordinator.types import ChatPrompt, TextPrompt, TokenPrompt, Truncation
from tokenwire.errors import InvalidRequest

TEXT = "one two three four"
CHAT = ChatPrompt([{"role": "user", "content": TEXT}])


async def test_inputs_of_every_kind_become_ids_in_their_order() -> None:
    """Messages go through the template, texts through the tokenizer, ids are unchanged; none is padded."""
    prepared = await prepare_inputs(
        pooling_request(TokenPrompt([7]), TextPrompt("five"), CHAT, TextPrompt("nine one")), embedding_model()
    )

    assert [list(each) for each in prepared.token_ids] == [[7], [5], ids(TEXT), [9, 1]]
    assert prepared.second_begins == []


@pytest.mark.parametrize("given", [TokenPrompt(list(ids(TEXT))), TextPrompt(TEXT), CHAT], ids=["ids", "text", "chat"])
@pytest.mark.parametrize(
    ("length", "side", "expected"),
    [(2, None, "one two"), (2, "right", "one two"), (2, "left", "three four"), (-1, None, TEXT), (4, "left", TEXT)],
)
async def test_inputs_are_truncated_on_the_tokenizers_side(
    given: Input, length: int, side: str | None, expected: str
) -> None:
    """Unless the request names one; -1 keeps what fits."""
    truncation = Truncation(length, side, "right")  # type: ignore[arg-type]

    prepared = await prepare_inputs(pooling_request(given, truncation=truncation), embedding_model(4))

    assert list(prepared.token_ids[0]) == ids(expected)


async def test_long_texts_are_truncated_apart_from_others() -> None:
    """The ids are those of the whole text."""
    inputs = [TextPrompt("one"), TextPrompt("two " * 40_000), TextPrompt("three " * 9)]

    prepared = await prepare_inputs(
        pooling_request(*inputs, truncation=Truncation(3, None, "right")), embedding_model()
    )

    assert [list(each) for each in prepared.token_ids] == [[1], [2, 2, 2], [3, 3, 3]]


async def test_texts_are_truncated_in_a_thread() -> None:
    """Others have their turns meanwhile, as while texts are tokenized."""
    model, threads = embedding_model(2), set[threading.Thread]()

    class Backend:
        def __init__(self, backend: Any) -> None:
            self.backend = backend

        def __getattr__(self, name: str) -> Any:
            threads.add(threading.current_thread())
            return getattr(self.backend, name)

    backend: Any = Backend(model.tokenizer.backend)
    model.tokenizer.backend = backend
    inputs = [TextPrompt("one " * 2000)] * 2
    prepared = await prepare_inputs(pooling_request(*inputs, truncation=Truncation(2, None, "right")), model)

    assert [list(each) for each in prepared.token_ids] == [[1, 1]] * 2
    assert threads
    assert threading.main_thread() not in threads


async def test_many_texts_are_tokenized_in_batches() -> None:
    """Each keeps its place."""
    digits = ["one", "two", "three"] * 2_000

    prepared = await prepare_inputs(pooling_request(*[TextPrompt(each) for each in digits]), embedding_model())

    assert prepared.token_ids == [[1], [2], [3]] * 2_000


async def test_inputs_are_padded_only_if_it_is_requested() -> None:
    """With the model's own id; without one, that is an error."""
    request = pooling_request(TextPrompt("one"), TokenPrompt([2, 3]), pads=True)

    prepared = await prepare_inputs(request, embedding_model(4, pad_token_id=9))
    with pytest.raises(InvalidRequest, match="padding"):
        await prepare_inputs(request, embedding_model(4))

    assert [list(each) for each in prepared.token_ids] == [[1, 9, 9, 9], [2, 3, 9, 9]]


async def test_padding_of_a_pair_has_the_type_of_its_last_token() -> None:
    """So the second text begins where it did; without one, the padding belongs to the first."""
    model = replace(embedding_model(8, token_types=True, pad_token_id=9), tokenizer=bert_model().tokenizer)

    prepared = await prepare_inputs(pooling_request(TextPair("one", "two three"), pads=True), model)
    alone = await prepare_inputs(pooling_request(TextPair("one", ""), pads=True), model)

    assert ([*prepared.token_ids[0]], prepared.second_begins) == ([10, 1, 11, 2, 3, 11, 9, 9], [3])
    assert ([*alone.token_ids[0]], alone.second_begins) == ([10, 1, 11, 9, 9, 9, 9, 9], [8])


async def test_texts_are_in_lower_case_for_models_that_want_it() -> None:
    """As vLLM does for some."""
    prepared = await prepare_inputs(pooling_request(TextPrompt("ONE")), embedding_model(lower_case=True))

    assert prepared.token_ids == [[1]]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (TextPrompt("one " * 21), "at least 21 input tokens"),
        (TokenPrompt([1] * 22), "contains 22 input tokens"),
        (TextPrompt("one " * 500), "2000 characters"),
        (TokenPrompt([]), "cannot be empty"),
        (TextPrompt(""), "cannot be empty"),
        (TokenPrompt([10]), "Token id 10 is out of vocabulary"),
        (TokenPrompt([-1]), "Token id -1 is out of vocabulary"),
    ],
)
async def test_inputs_that_cannot_be_embedded_are_refused(given: Input, message: str) -> None:
    """In vLLM's words."""
    with pytest.raises(InvalidRequest, match=message):
        await prepare_inputs(pooling_request(TextPrompt("one"), given), embedding_model())


async def test_a_request_has_inputs_and_a_truncation_that_fits() -> None:
    """Others are refused before anything is tokenized."""
    with pytest.raises(InvalidRequest, match="at least one prompt"):
        await prepare_inputs(pooling_request(), embedding_model())
    with pytest.raises(InvalidRequest, match="greater than max_model_len"):
        await prepare_inputs(pooling_request(TextPrompt("one"), truncation=Truncation(21)), embedding_model())


async def test_embeddings_may_have_a_limit_of_their_own() -> None:
    """Below the model's context."""
    with pytest.raises(InvalidRequest, match="maximum context length is 2 tokens"):
        await prepare_inputs(pooling_request(TextPrompt("one two three"), max_tokens=2), embedding_model())
