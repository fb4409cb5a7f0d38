"""Content blocks become chat messages."""

from typing import Any

import pytest

from tests.coordinator.api.anthropic.requests import HI, message_of, messages_chat
from tokenwire.errors import InvalidRequest

HEADER = "x-anthropic-billing-header: cc_version=2.1.177.01c; cc_entrypoint=cli; cch=36ee5;"


@pytest.mark.parametrize(
    ("system", "text"),
    [
        ("Be brief.", "Be brief."),
        ([{"type": "text", "text": "Be "}, {"type": "text", "text": "brief."}], "Be brief."),
    ],
)
def test_system_prompts_come_first(system: Any, text: str) -> None:
    """As text or blocks."""
    assert messages_chat(system=system).messages == [{"role": "system", "content": text}, HI]


@pytest.mark.parametrize(
    ("system", "text"),
    [
        ([HEADER, "Be."], "Be."),
        (["Be ", HEADER, "kind."], "Be kind."),
        ([HEADER + "\nBe brief.\nBe kind."], "Be brief.\nBe kind."),
        ([HEADER + "\nBe brief.", " Be kind."], "Be brief. Be kind."),
        (["Be brief.\n" + HEADER], "Be brief.\n"),
        (["Be brief.\n" + HEADER + "\nBe kind."], "Be brief.\nBe kind."),
        (["Be brief.\r\n" + HEADER + "\r\n\r\nBe kind.\n" + HEADER + "\n"], "Be brief.\r\n\r\nBe kind.\n"),
        (["It sends `" + HEADER + "`."], "It sends `" + HEADER + "`."),
        (HEADER + "\nBe brief.\nBe kind.", "Be brief.\nBe kind."),
    ],
)
@pytest.mark.parametrize("inline", [False, True])
def test_only_the_line_of_a_billing_header_is_removed(system: str | list[str], text: str, inline: bool) -> None:
    """It changes with every request. The rest stays, in text and blocks, of the system prompt and of messages; so do
    lines that only mention it.
    """
    content = system if isinstance(system, str) else [{"type": "text", "text": block} for block in system]
    request = messages_chat(HI, {"role": "system", "content": content}) if inline else messages_chat(system=content)

    assert [m["content"] for m in request.messages if m["role"] == "system"] == [text]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r", "\u2028", "\x85"])
def test_a_billing_header_ends_where_its_line_ends(end: str) -> None:
    """With any line separator."""
    assert messages_chat(system=f"{HEADER}{end}Be brief.\nBe kind.").messages[0]["content"] == "Be brief.\nBe kind."


def test_a_similar_word_is_not_a_billing_header() -> None:
    """The header has a colon."""
    assert (
        messages_chat(system="x-anthropic-billing-headers are lines.").messages[0]["content"].startswith("x-anthropic")
    )


@pytest.mark.parametrize("system", [HEADER, HEADER + "\n", [{"type": "text", "text": HEADER}]])
def test_a_billing_header_alone_is_not_a_system_prompt(system: Any) -> None:
    """No empty message is left."""
    assert messages_chat(system=system).messages == [HI]
    assert messages_chat(HI, {"role": "system", "content": system}).messages == [HI]


def test_system_messages_keep_their_place_if_the_template_supports_that() -> None:
    """Otherwise they are moved to the front."""
    reminder = {"role": "system", "content": " Be quick."}

    assert messages_chat(HI, reminder, system="Be.").messages == [{"role": "system", "content": "Be."}, HI, reminder]
    assert messages_chat(HI, reminder, system="Be.", system_first=True).messages == [
        {"role": "system", "content": "Be. Be quick."},
        HI,
    ]


@pytest.mark.parametrize(
    ("message", "messages"),
    [
        (message_of("user", {"type": "text", "text": "a"}), [{"role": "user", "content": "a"}]),
        (
            message_of("user", {"type": "text", "text": "a", "cache_control": {}}, {"type": "text", "text": "b"}),
            [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}],
        ),
        (
            message_of(
                "assistant",
                {"type": "thinking", "thinking": "hm", "signature": "s"},
                {"type": "redacted_thinking", "data": "x"},
                {"type": "text", "text": "a"},
                {"type": "tool_use", "id": "t", "name": "f", "input": {"x": 1}},
            ),
            [
                {
                    "role": "assistant",
                    "reasoning": "hm",
                    "content": "a",
                    "tool_calls": [{"id": "t", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}],
                }
            ],
        ),
        (
            message_of(
                "user",
                {"type": "tool_result", "tool_use_id": "t", "content": "42"},
                {"type": "tool_result", "tool_use_id": "u", "content": [{"type": "text", "text": "43"}]},
                {"type": "tool_result", "tool_use_id": "v"},
                {"type": "text", "text": "Well?"},
            ),
            [
                {"role": "tool", "tool_call_id": "t", "content": "42"},
                {"role": "tool", "tool_call_id": "u", "content": "43"},
                {"role": "tool", "tool_call_id": "v", "content": ""},
                {"role": "user", "content": "Well?"},
            ],
        ),
    ],
)
def test_blocks_become_messages(message: Any, messages: list[Any]) -> None:
    """Text, reasoning and calls are one message; tool results have their own."""
    assert messages_chat(message).messages == messages


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (message_of("user", {"type": "image", "source": {}}), "messages[0].content[0] is of type 'image'"),
        (message_of("user", {"type": "document", "source": {}}), "takes text and pictures only"),
        (message_of("assistant", {"type": "image", "source": {"type": "url", "url": "x"}}), "'image', which is not"),
        (
            message_of("user", {"type": "image", "source": {"type": "file", "file_id": "x"}}),
            "base64 or url, not 'file'",
        ),
        (
            message_of("user", {"type": "image", "source": {"type": "url"}}),
            "messages[0].content[0].source.url is required",
        ),
        (
            message_of("user", {"type": "image", "source": {"type": "base64", "data": "x"}}),
            "source.media_type is required",
        ),
        (message_of("user", {"type": "tool_use", "id": "t", "name": "f", "input": {}}), "'tool_use', which is not"),
        (message_of("user", {"type": "server_tool_use"}), "'server_tool_use', which is not supported"),
        (message_of("user", {"type": "text"}), "messages[0].content[0].text is required"),
        (message_of("assistant", {"type": "tool_use", "id": "t", "name": "f"}), "input is required"),
        (
            message_of("user", {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "image"}]}),
            "messages[0].content[0].content[0] is of type 'image'",
        ),
        (message_of("user", {"type": "tool_result", "content": "x"}), "tool_use_id is required"),
        ({"role": "user"}, "messages[0].content must be"),
        ({"role": "tool", "content": "x"}, "messages[0].role"),
        ({"role": "user", "content": ["x"]}, "messages[0].content[0]"),
    ],
)
def test_other_blocks_are_rejected_by_name(message: Any, words: str) -> None:
    """The error names the position of a block that is not served or is invalid."""
    with pytest.raises(InvalidRequest) as raised:
        messages_chat(message)

    assert words in raised.value.message


def test_a_final_assistant_message_is_continued() -> None:
    """Clients prefill replies with it; after a call the turn is over."""
    request = messages_chat(HI, {"role": "assistant", "content": "One,"})
    call = {"type": "tool_use", "id": "t", "name": "f", "input": {}}

    assert request.continue_final_message
    assert not request.add_generation_prompt
    assert messages_chat(HI, message_of("assistant", {"type": "text", "text": "a"}, call)).add_generation_prompt


PNG = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "QUJD"}}
WEB = {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}}
PNG_PART = {"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD"}}
WEB_PART = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}


def test_pictures_are_parts_of_their_message() -> None:
    """By their bytes or their URL, before and behind text."""
    text = {"type": "text", "text": "a"}
    assert messages_chat(message_of("user", PNG, text, WEB)).messages == [
        {"role": "user", "content": [PNG_PART, text, WEB_PART]}
    ]
    assert messages_chat(message_of("user", PNG)).messages == [{"role": "user", "content": [PNG_PART]}]


def test_pictures_of_a_tools_result_follow_it_in_a_message_of_the_users() -> None:
    """As in vLLM: templates take text as results."""
    call = {"type": "tool_use", "id": "t", "name": "look", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "seen"}, PNG, WEB]}
    messages = messages_chat(message_of("assistant", call), message_of("user", result)).messages
    assert messages[1:] == [
        {"role": "tool", "tool_call_id": "t", "content": "seen"},
        {"role": "user", "content": [PNG_PART, WEB_PART]},
    ]
