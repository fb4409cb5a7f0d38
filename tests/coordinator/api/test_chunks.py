"""Streamed chunks: the same JSON whether rendered by template or whole."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.api.chunks import ChatChunks, CompletionChunks
from coordinator.request import Finish, Usage
from tokenwire.errors import WorkerLost

PROMPTS = [[1, 2], [3, 4]]


def chat(**options: Any) -> ChatChunks:
    """Return chat chunks of two choices."""
    common = {"response_id": "chatcmpl-1", "created": 7, "model": "m", "choices": 2, "prompts": PROMPTS[:1]}
    return ChatChunks(role="assistant", **{**common, **options})


def completion(**options: Any) -> CompletionChunks:
    """Return completion chunks of two prompts with one choice each."""
    common = {"response_id": "cmpl-1", "created": 7, "model": "m", "choices": 2, "prompts": PROMPTS}
    return CompletionChunks(**{**common, **options})


def parse(data: bytes) -> list[Any]:
    """Return the objects of server-sent events."""
    events = data.decode().split("\n\n")
    assert events.pop() == ""
    assert all(event.startswith("data: ") for event in events)
    return [json.loads(event.removeprefix("data: ")) for event in events]


@given(text=st.text())
def test_any_text_survives(text: str) -> None:
    """Quotes, control characters, line separators and emoji arrive as they were, in one event."""
    for writer in (chat(), chat(return_token_ids=True), completion(), completion(return_token_ids=True)):
        (chunk,) = parse(writer.delta(0, text, [5], None))
        choice = chunk["choices"][0]
        assert (choice["delta"]["content"] if "delta" in choice else choice["text"]) == text


@pytest.mark.parametrize("kind", [chat, completion])
def test_the_fast_path_says_what_the_slow_one_says(kind: Any) -> None:
    """A delta without extras has the fields that one with extras has, empty."""
    (fast,) = parse(kind().delta(1, "x", [5], None))
    (slow,) = parse(kind(return_token_ids=True).delta(1, "x", [5], None))

    assert slow["choices"][0].pop("token_ids") == [5]
    assert fast["choices"][0].pop("token_ids") is None
    slow["choices"][0].pop("prompt_token_ids", None)
    assert fast == slow


def test_a_finish_has_reason_and_stop_reason() -> None:
    """The last delta names why the choice ended."""
    (chunk,) = parse(chat().delta(1, "", [2], Finish("stop", "END")))

    choice = chunk["choices"][0]
    assert (choice["index"], choice["finish_reason"], choice["stop_reason"]) == (1, "stop", "END")
    assert choice["delta"] == {"content": ""}


def test_a_chat_opens_with_the_role_of_every_choice() -> None:
    """One chunk per choice names the role; the prompt's ids come with it when asked for."""
    first, second = parse(chat(return_token_ids=True).opening())

    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert second["choices"][0]["index"] == 1
    assert first["prompt_token_ids"] == [1, 2]


def test_a_completion_opens_with_nothing_and_shows_each_prompt_once() -> None:
    """Prompt ids are in the first delta of each choice only."""
    writer = completion(return_token_ids=True)

    assert writer.opening() == b""
    shown = [parse(writer.delta(1, "x", [5], None))[0]["choices"][0]["prompt_token_ids"] for _ in range(2)]
    assert shown == [[3, 4], None]


def test_usage_comes_when_asked() -> None:
    """Without include_usage nothing closes a stream; with it, one chunk without choices."""
    assert chat().closing(Usage(2, 3)) == b""

    (chunk,) = parse(chat(include_usage=True).closing(Usage(2, 3)))

    assert chunk["choices"] == []
    assert chunk["usage"] == {"prompt_tokens": 2, "completion_tokens": 3, "total_tokens": 5}


def test_continuous_usage_counts_each_choice() -> None:
    """Every delta carries its own choice's count so far."""
    writer = chat(continuous_usage=True)
    writer.delta(0, "a", [1, 2], None)

    (again,) = parse(writer.delta(0, "", [3], None))
    (other,) = parse(writer.delta(1, "b", [9], None))

    assert again["usage"] == {"prompt_tokens": 2, "completion_tokens": 3, "total_tokens": 5}
    assert other["usage"]["completion_tokens"] == 1


def test_an_error_has_openais_shape() -> None:
    """An error in mid-stream is an event with the error object."""
    (event,) = parse(chat().error(WorkerLost("gone")))

    assert event == {"error": {"message": "gone", "type": "ServiceUnavailableError", "param": None, "code": 503}}
