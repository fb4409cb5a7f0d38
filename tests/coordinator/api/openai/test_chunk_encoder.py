"""Streamed chunks have the same JSON on the fast path and on the slow one."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.coordinator.api.openai.chunks import chat_chunks, chunks_of, completion_chunks, parsed_chat_chunks
from tokenwire.coordinator.api.fields.logprobs import LogprobStyle
from tokenwire.coordinator.text.logprobs import ScoredPosition, ScoredToken
from tokenwire.coordinator.types import Finish, Prefill, Usage, WeightSpan
from tokenwire.errors import WorkerLost

LOGPROBS = [ScoredPosition.of(ScoredToken(5, "x", -0.5, 1), ScoredToken(6, "y", float("-inf"), 2))]


@given(text=st.text())
def test_any_text_is_unchanged(text: str) -> None:
    """Quotes, control characters, line separators and emoji are unchanged, in one event."""
    for writer in (
        chat_chunks(),
        chat_chunks(return_token_ids=True),
        completion_chunks(),
        completion_chunks(return_token_ids=True),
    ):
        (chunk,) = chunks_of(writer.delta(0, text, [5], None))
        choice = chunk["choices"][0]
        assert (choice["delta"]["content"] if "delta" in choice else choice["text"]) == text


@pytest.mark.parametrize("kind", [chat_chunks, completion_chunks])
def test_the_fast_path_equals_the_slow_one(kind: Any) -> None:
    """A delta without extras has the fields of one with extras, empty."""
    (fast,) = chunks_of(kind().delta(1, "x", [5], None))
    (slow,) = chunks_of(kind(return_token_ids=True).delta(1, "x", [5], None))

    assert slow["choices"][0].pop("token_ids") == [5]
    assert fast["choices"][0].pop("token_ids") is None
    for chunk in (slow, fast):
        chunk["choices"][0].pop("prompt_token_ids", None)
    assert fast == slow


def test_a_finish_has_reason_and_stop_reason() -> None:
    """The last delta has both."""
    (chunk,) = chunks_of(chat_chunks().delta(1, "", [2], Finish("stop", "END")))

    choice = chunk["choices"][0]
    assert (choice["index"], choice["finish_reason"], choice["stop_reason"]) == (1, "stop", "END")
    assert choice["delta"] == {"content": ""}


@pytest.mark.parametrize("kind", [chat_chunks, parsed_chat_chunks, completion_chunks])
def test_requested_ids_have_weight_versions(kind: Any) -> None:
    """With the finish, as on /inference/v1/generate; other requests get none."""
    finish = Finish("stop", weight_versions=[WeightSpan("v1", 0, 2), WeightSpan("v2", 2, 3)])
    requested = kind(return_token_ids=True)
    first, last = (chunks_of(requested.delta(0, "x", [5], end))[0]["choices"][0] for end in (None, finish))
    (not_requested,) = chunks_of(kind().delta(0, "x", [5], finish))

    assert "weight_versions" not in first
    assert last["weight_versions"] == [
        {"version": "v1", "start": 0, "end": 2},
        {"version": "v2", "start": 2, "end": 3},
    ]
    assert "weight_versions" not in not_requested["choices"][0]


def test_weights_without_a_label_are_null() -> None:
    """With requested ids, unknown versions are null."""
    (chunk,) = chunks_of(chat_chunks(return_token_ids=True).delta(0, "x", [5], Finish("stop")))

    assert chunk["choices"][0]["weight_versions"] is None


def test_a_chat_opens_with_the_role_of_every_choice() -> None:
    """One chunk per choice has the role; requested prompt ids come with it."""
    first, second = chunks_of(b"".join(chat_chunks(return_token_ids=True).opening()))

    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert second["choices"][0]["index"] == 1
    assert first["prompt_token_ids"] == [1, 2]


def test_a_completion_has_each_prompt_once() -> None:
    """Prompt ids are in the first delta of each choice only."""
    writer = completion_chunks(return_token_ids=True)

    assert not list(writer.opening())
    shown = [chunks_of(writer.delta(1, "x", [5], None))[0]["choices"][0]["prompt_token_ids"] for _ in range(2)]
    assert shown == [[3, 4], None]


def test_usage_comes_if_requested() -> None:
    """Without include_usage a stream ends without it; with it, one chunk without choices."""
    assert chat_chunks().closing(Usage(2, 3)) == b""

    (chunk,) = chunks_of(chat_chunks(include_usage=True).closing(Usage(2, 3)))

    assert chunk["choices"] == []
    assert chunk["usage"] == {"prompt_tokens": 2, "completion_tokens": 3, "total_tokens": 5}


def test_continuous_usage_counts_each_choice() -> None:
    """Every delta carries its own choice's count so far."""
    writer = chat_chunks(continuous_usage=True, include_usage=True)
    writer.delta(0, "a", [1, 2], None)

    (again,) = chunks_of(writer.delta(0, "", [3], None))
    (other,) = chunks_of(writer.delta(1, "b", [9], None))

    assert again["usage"] == {"prompt_tokens": 2, "completion_tokens": 3, "total_tokens": 5}
    assert other["usage"]["completion_tokens"] == 1


def test_an_error_has_openais_format() -> None:
    """An error mid-stream is an event with the error object."""
    (event,) = chunks_of(chat_chunks().error(WorkerLost("gone")))

    assert event == {"error": {"message": "gone", "type": "ServiceUnavailableError", "param": None, "code": 503}}


def test_chat_logprobs_come_with_their_delta() -> None:
    """Each token has its text, bytes and the most likely ones; minus infinity becomes a number."""
    (chunk,) = chunks_of(chat_chunks(logprobs=LogprobStyle(2)).delta(0, "x", [5], None, LOGPROBS))

    (entry,) = chunk["choices"][0]["logprobs"]["content"]
    assert (entry["token"], entry["logprob"], entry["bytes"]) == ("x", -0.5, [120])
    assert [other["logprob"] for other in entry["top_logprobs"]] == [-0.5, -9999.0]


def test_an_echo_puts_the_prompt_before_the_first_delta() -> None:
    """A completion echoes its prompt once, decoded if it was ids; a chat the message that it continues."""
    writer = completion_chunks(show_prompt=True)
    texts = [chunks_of(writer.delta(index, "x", [5], None))[0]["choices"][0]["text"] for index in (0, 0, 1)]
    assert texts == ["one twox", "x", "three fourx"]

    *_, echoed = chunks_of(b"".join(chat_chunks(echo="Once").opening()))
    assert echoed["choices"][0]["delta"] == {"content": "Once"}


def test_usage_has_cached_tokens_if_enabled() -> None:
    """The server's option adds details of the prompt to the usage."""
    writer = chat_chunks(include_usage=True, usage_details=True)
    writer.prefilled(0, Prefill(16))

    (chunk,) = chunks_of(writer.closing(Usage(20, 3)))

    assert chunk["usage"]["prompt_tokens_details"] == {"cached_tokens": 16}
