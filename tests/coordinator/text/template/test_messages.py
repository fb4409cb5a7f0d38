"""Messages are parsed in every form that clients send, and errors name the invalid field."""

from typing import Any

import pytest

from tokenwire.coordinator.text.template.messages import developer_as_system, parse_messages
from tokenwire.coordinator.text.template.pictures import PicturePart
from tokenwire.errors import InvalidRequest


def parsed_content(value: Any, role: str = "user", form: Any = "string") -> Any:
    """Parse one message; return its content."""
    return parse_messages([{"role": role, "content": value}], form)[0]["content"]


def test_content_as_a_string() -> None:
    """Text is unchanged, parts are joined by lines, null and missing content are empty."""
    assert parsed_content("a") == "a"
    assert parsed_content(["a", {"type": "text", "text": "b"}, {"type": "refusal", "refusal": "c"}]) == "a\nb\nc"
    assert parsed_content([{"type": "input_text", "text": "a"}, {"type": "output_text", "text": "b"}]) == "a\nb"
    assert parsed_content([{"type": "thinking", "thinking": "a"}]) == "a"
    assert parsed_content(["a", "", {"type": "text", "text": ""}, "b", {"type": "text", "text": ""}]) == "a\nb"
    assert parsed_content([{"type": "text", "text": ""}]) == parsed_content([]) == ""
    assert parsed_content(None, "assistant") == ""
    assert parse_messages([{"role": "user"}], "string")[0]["content"] == ""


def test_content_as_parts() -> None:
    """Everything becomes text parts, which keep fields for templates."""
    assert parsed_content("a", form="openai") == [{"type": "text", "text": "a"}]
    part = {"type": "input_text", "text": "a", "cache_control": {"type": "ephemeral"}, "uuid": "1"}
    assert parsed_content([part], form="openai") == [
        {"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}
    ]
    assert parsed_content(None, "assistant", "openai") == []
    assert parsed_content([{"type": "text", "text": None}, "b"], form="openai") == [{"type": "text", "text": "b"}]


def test_tool_results_are_text_in_any_format() -> None:
    """Tool results are a string, unless they refer to tools, which only the template can resolve."""
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert parsed_content(parts, "tool", "openai") == "a\nb"
    assert parsed_content([*parts, ""], "tool", "openai") == "a\nb\n"  # as vLLM, unlike with the other format
    assert parsed_content([*parts, ""], "tool") == "a\nb"
    reference = [{"type": "tool_reference", "name": "f"}]
    assert parsed_content(reference, "tool", "openai") == reference
    assert parsed_content(reference, "tool") == "f"
    message = {"role": "tool", "content": "r", "tool_call_id": "1", "name": "f"}
    assert parse_messages([message], "string") == [message]


@pytest.mark.parametrize("kind", ["image_url", "input_audio", "video_url", "image_embeds", "file"])
def test_media_are_rejected(kind: str) -> None:
    """Images, audio and video are rejected with the part's position and type, even if the type is omitted."""
    for part in ({"type": kind, kind: {"url": "http://x"}}, {kind: "x"}):
        with pytest.raises(InvalidRequest, match=rf"messages\[0\]\.content\[1\] is of type '{kind}'") as caught:
            parsed_content(["look", part])
        assert caught.value.param == "messages"


@pytest.mark.parametrize(
    ("messages", "problem"),
    [
        ("x", "messages must be a list"),
        (None, "messages must be a list"),
        (["x"], r"messages\[0\] must be an object"),
        ([{"content": "x"}], r"messages\[0\]\.role is required"),
        ([{"role": 5}], r"messages\[0\]\.role is required"),
        ([{"role": "user", "content": None}], r"messages\[0\]\.content must not be null"),
        ([{"role": "user", "content": 5}], r"messages\[0\]\.content must be a string or a list"),
        ([{"role": "user", "content": {"text": "x"}}], r"messages\[0\]\.content must be a string or a list"),
        ([{"role": "user", "content": [5]}], r"content\[0\] must be an object or a string"),
        ([{"role": "user", "content": [{"text": "x"}]}], r"content\[0\]\.type is required"),
        ([{"role": "user", "content": [{"type": "wat"}]}], "unknown type 'wat'. Supported types: text, input_text"),
        ([{"role": "user", "content": [{"type": ["text"]}]}], "unknown type"),
        ([{"role": "user", "content": [{"type": "text", "text": 5}]}], r"content\[0\]\.text must be a string"),
        ([{"role": "user", "content": "x", "name": 5}], r"messages\[0\]\.name must be a string"),
        ([{"role": "assistant", "reasoning": 5}], r"messages\[0\]\.reasoning must be a string"),
        ([{"role": "assistant", "tool_calls": "x"}], r"messages\[0\]\.tool_calls must be a list"),
        ([{"role": "assistant", "tool_calls": ["x"]}], r"tool_calls\[0\] must be an object"),
        ([{"role": "assistant", "tool_calls": [{"type": "custom", "custom": {}}]}], "must be of type 'function'"),
        ([{"role": "assistant", "tool_calls": [{"function": {}}]}], r"tool_calls\[0\]\.function\.name is required"),
    ],
)
def test_malformed_messages_are_rejected(messages: Any, problem: str) -> None:
    """The error has the message's position and the reason."""
    with pytest.raises(InvalidRequest, match=problem) as caught:
        parse_messages(messages, "string")
    assert caught.value.param == "messages"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ('{"a": {"b": "é"}}', {"a": {"b": "é"}}),
        ({"a": 1}, {"a": 1}),
        ("", {}),
        (None, {}),
        ("{broken", {}),
        ("[1]", {}),
        (7, {}),
    ],
)
def test_arguments_become_objects(given: Any, expected: dict[str, Any]) -> None:
    """Templates get arguments as an object; a model's invalid ones do not fail the conversation."""
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": given}}
    message = {"role": "assistant", "tool_calls": [call]}
    (parsed,) = parse_messages([message], "string")[0]["tool_calls"]
    assert parsed == {"id": "1", "type": "function", "function": {"name": "f", "arguments": expected}}
    assert list(parsed) == ["id", "function", "type"]
    assert call["function"] == {"name": "f", "arguments": given}


def test_reasoning_has_two_names() -> None:
    """Templates get both; reasoning takes precedence over reasoning_content, and only assistants have it."""
    message = {"role": "assistant", "content": "a", "reasoning_content": "r"}
    both = {"role": "assistant", "content": "a", "reasoning": "r", "reasoning_content": "r"}
    assert parse_messages([message], "string") == [both]
    assert parse_messages([both | {"reasoning_content": "other"}], "string") == [both]
    assert parse_messages([message | {"role": "user"}], "string") == [{"role": "user", "content": "a"}]


def test_empty_tool_calls_are_omitted() -> None:
    """Templates test whether there are tool calls; an empty list must not count."""
    for message in ({"role": "assistant", "tool_calls": []}, {"role": "assistant", "tool_calls": None}):
        assert "tool_calls" not in parse_messages([message], "string")[0]


def test_the_billing_header_is_dropped() -> None:
    """Some clients begin system prompts with it; it differs each time and would defeat prefix caching."""
    assert parsed_content("x-anthropic-billing-header: 7\nreal", "system") == "real"
    assert parsed_content(["x-anthropic-billing-header: 7", "real"], "system") == "real"
    assert parsed_content("x-anthropic-billing-header: 7", "user") == "x-anthropic-billing-header: 7"


def test_developers_become_one_system_message() -> None:
    """System and developer messages are joined into one at the front, whatever the form of their content."""
    conversation: list[dict[str, Any]] = [
        {"role": "user", "content": "u"},
        {"role": "developer", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "tools": []},
        {"role": "system", "content": "c"},
        {"role": "system", "content": ""},
    ]
    assert developer_as_system(conversation) == [{"role": "system", "content": "a\nb\n\nc"}, conversation[0]]
    assert developer_as_system(conversation[2:]) == conversation[2:]
    (alone,) = developer_as_system([conversation[1] | {"name": "n"}])
    assert alone == {"role": "system", "content": conversation[1]["content"], "name": "n"}


PICTURE = PicturePart("<image>", {}, b"")


def test_pictures_are_parts_for_templates_that_take_parts() -> None:
    """They stay where they are, with the fields that are for the template, in results of tools too."""
    marked = PicturePart("<image>", {"cache_control": 1}, b"")
    parts = [{"type": "text", "text": "a"}, {"type": "image", "cache_control": 1}, {"type": "text", "text": "b"}]
    assert parsed_content(["a", marked, "b"], form="openai") == parts
    assert parsed_content(["a", PICTURE], "tool", "openai") == [{"type": "text", "text": "a"}, {"type": "image"}]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (["a", PICTURE, "b"], "<image>\na\nb"),
        ([PICTURE], "<image>"),
        ([PICTURE, "see <image> and", PICTURE], "<image>\nsee <image> and"),
        ([PicturePart("<1>", {}, b""), "a", PicturePart("<2>", {}, b"")], "<1>\n<2>\na"),
        ([PicturePart("", {}, b""), "a"], "a"),
    ],
)
@pytest.mark.parametrize("role", ["user", "system", "tool"])
def test_pictures_are_placeholders_for_templates_that_take_text(content: list[Any], text: str, role: str) -> None:
    """Those that the text does not have stand before it, as in vLLM."""
    assert parsed_content(content, role) == text


def test_more_placeholders_than_pictures_are_an_error() -> None:
    """In vLLM's words."""
    with pytest.raises(InvalidRequest, match="Found more '<image>' placeholders"):
        parsed_content(["<image> <image>", PICTURE])


def test_pictures_in_developer_messages_need_a_template_for_them() -> None:
    """Merged with system messages they would be lost."""
    messages = parse_messages([{"role": role, "content": [PICTURE]} for role in ("system", "developer")], "openai")
    with pytest.raises(InvalidRequest, match="must not have pictures"):
        developer_as_system(messages)


def test_a_body_cannot_bring_what_stands_for_a_picture() -> None:
    """A part of the type that templates get is unknown in requests."""
    with pytest.raises(InvalidRequest, match="unknown type 'image'"):
        parsed_content([{"type": "image"}], form="openai")
