"""Input items become chat messages."""

from typing import Any

import pytest

from tests.coordinator.api.responses.requests import CALL, responses_chat, user
from tokenwire.coordinator.api.responses.items import messages_of
from tokenwire.errors import InvalidRequest


def test_text_is_a_user_message() -> None:
    """Input as a string, after the instructions."""
    assert responses_chat("Hi", instructions="Be brief.").messages == [
        {"role": "system", "content": "Be brief."},
        user("Hi"),
    ]


@pytest.mark.parametrize(
    ("items", "messages"),
    [
        ([user("a"), {"type": "message", **user([{"type": "input_text", "text": "b"}])}],
         [user("a"), user([{"type": "text", "text": "b"}])]),
        ([{"role": "developer", "content": "d"}, user("a")], [{"role": "developer", "content": "d"}, user("a")]),
        ([{"role": "assistant", "content": [{"type": "output_text", "text": "a", "annotations": []},
                                             {"type": "output_text", "text": "b"}]}],
         [{"role": "assistant", "content": "ab"}]),
        ([{"type": "reasoning", "id": "r", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
          {"role": "assistant", "content": "a"}, CALL],
         [{"role": "assistant", "reasoning": "hm", "content": "a",
           "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]}]),
        ([{"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "s"}]}],
         [{"role": "assistant", "reasoning": "s"}]),
        ([{"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b"}],
         [{"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b"}]),
        ([{"type": "function_call_output", "call_id": "c", "output": "42"}],
         [{"role": "tool", "tool_call_id": "c", "content": "42"}]),
        ([{"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "42"}]}],
         [{"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "42"}]}]),
    ],
)  # fmt: skip
def test_items_become_messages(items: list[Any], messages: list[Any]) -> None:
    """Consecutive reasoning, text and calls are one assistant message."""
    assert responses_chat(items).messages == messages


@pytest.mark.parametrize(
    ("item", "words"),
    [
        ({"type": "item_reference", "id": "x"}, "input[0] is an item_reference"),
        ({"type": "web_search_call", "id": "x"}, "unsupported type 'web_search_call'"),
        ({"type": ["message"]}, "unsupported type"),
        (user([{"type": "input_file", "file_data": "x"}]), "input[0].content[0] is of type 'input_file'"),
        (user([{"type": "input_image", "file_id": "x"}]), "input[0].content[0].file_id is not supported"),
        (user([{"type": "input_image"}]), "input[0].content[0].image_url is required"),
        (
            {"role": "assistant", "content": [{"type": "input_image", "image_url": "x"}]},
            "input[0] is the assistant's",
        ),
        (user([{"type": ["input_text"]}]), "input[0].content[0]"),
        (user(["text"]), "input[0].content[0]"),
        (user(None), "input[0].content must be"),
        ({"role": "tool", "content": "x"}, "input[0].role"),
        ({"type": "reasoning", "summary": [], "encrypted_content": "x"}, "encrypted_content"),
        ({"type": "reasoning", "summary": 3}, "input[0].summary"),
        ({"type": "function_call", "name": "f", "arguments": "{}"}, "input[0].call_id"),
        ({**CALL, "arguments": {}}, "input[0].arguments"),
        ({"type": "function_call_output", "output": "x"}, "input[0].call_id"),
    ],
)
def test_other_items_are_rejected_by_name(item: Any, words: str) -> None:
    """The error names the position of an item that is not served or is invalid."""
    with pytest.raises(InvalidRequest) as raised:
        responses_chat([item])

    assert words in raised.value.message
    assert raised.value.param == "input"


def test_empty_input_is_rejected() -> None:
    """There is nothing to reply to."""
    with pytest.raises(InvalidRequest, match="input"):
        responses_chat([])


def test_a_truncated_reply_is_continued() -> None:
    """If the last item is an incomplete assistant message."""
    cut = {"role": "assistant", "status": "incomplete", "content": [{"type": "output_text", "text": "One,"}]}

    request = responses_chat([user("Count."), cut])

    assert request.continue_final_message
    assert not request.add_generation_prompt
    assert responses_chat([user("Count."), {**cut, "status": "completed"}]).add_generation_prompt


@pytest.mark.parametrize(
    ("status", "between", "contents"),
    [
        ("incomplete", [], ["One, two."]),
        ("completed", [], ["One,", " two."]),
        ("incomplete", [{"role": "user", "content": "?"}], ["One,", "?", " two."]),
    ],
)
def test_a_continued_message_is_one(status: str, between: list[Any], contents: list[str]) -> None:
    """An item after an incomplete one is its rest; other items are separate messages."""
    cut = {"role": "assistant", "status": status, "content": [{"type": "output_text", "text": "One,"}]}
    rest = {"type": "message", "role": "assistant", "status": "completed", "content": " two."}

    request = responses_chat([user("Count."), cut, *between, rest, user("Thanks.")])

    assert [message["content"] for message in request.messages[1:-1]] == contents


def test_a_message_of_very_many_pieces_is_joined_once() -> None:
    """Joining after each piece would take a minute for this many."""
    piece = {"role": "assistant", "status": "incomplete", "content": "x" * 300}

    request = responses_chat([user("Count."), *([piece] * 20_000)])

    assert request.messages[-1]["content"] == "x" * 300 * 20_000


def test_pictures_are_parts_of_messages_and_of_what_functions_return() -> None:
    """Agents send screenshots as both."""
    picture = {"type": "input_image", "image_url": "data:x", "detail": "auto"}
    part = {"type": "image_url", "image_url": {"url": "data:x"}}
    text = {"type": "input_text", "text": "a"}
    items: list[dict[str, Any]] = [
        {"role": "user", "content": [text, picture]},
        {"type": "function_call", "call_id": "1", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "1", "output": [picture]},
    ]
    first, _, last = messages_of(None, items)
    assert first == {"role": "user", "content": [{"type": "text", "text": "a"}, part]}
    assert last == {"role": "tool", "content": [part], "tool_call_id": "1"}
