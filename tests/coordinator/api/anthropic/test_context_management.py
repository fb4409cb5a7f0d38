"""Old thinking is removed from the prompt on request."""

from typing import Any

import pytest

from tests.coordinator.api.anthropic.requests import HI, message_of, messages_chat
from tokenwire.errors import InvalidRequest

KEEP_ALL = {"type": "clear_thinking_20251015", "keep": "all"}


def keeping(turns: int) -> dict[str, Any]:
    """Return an edit that keeps the thinking of this number of turns."""
    return {"type": "clear_thinking_20251015", "keep": {"type": "thinking_turns", "value": turns}}


def message_with_thinking(text: str, *more: dict[str, Any]) -> dict[str, Any]:
    """Return an assistant message that begins with thinking."""
    return message_of("assistant", {"type": "thinking", "thinking": text, "signature": ""}, *more)


CALL = {"type": "tool_use", "id": "c", "name": "f", "input": {}}


RESULT = message_of("user", {"type": "tool_result", "tool_use_id": "c", "content": "42"})


OK = {"type": "text", "text": "ok"}


CONVERSATION = [
    *(HI, message_with_thinking("one", CALL), RESULT, message_with_thinking("two", OK)),  # one turn
    *(HI, message_of("assistant", OK)),  # one without thinking
    *(HI, message_with_thinking("three", OK), HI),
]


@pytest.mark.parametrize(
    "management",
    [
        *(None, {}, {"edits": []}, {"edits": [KEEP_ALL]}, {"edits": [{**KEEP_ALL, "keep": {"type": "all"}}]}),
        *({"edits": [keeping(2)]}, {"edits": [keeping(9)]}),
    ],
)
def test_context_management_without_effect_passes(management: Any) -> None:
    """Claude Code requests to keep all thinking, in two spellings."""
    assert messages_chat(*CONVERSATION, context_management=management).messages == messages_chat(*CONVERSATION).messages


@pytest.mark.parametrize("edit", [keeping(1), {"type": "clear_thinking_20251015"}])
def test_old_thinking_is_removed_on_request(edit: Any) -> None:
    """Except of the last turns that have some, by default one. Tool results do not start a turn."""
    bare = [
        message_of("assistant", *message["content"][1:]) if i in (1, 3) else message
        for i, message in enumerate(CONVERSATION)
    ]

    assert messages_chat(*CONVERSATION, context_management={"edits": [edit]}).messages == messages_chat(*bare).messages
    assert "reasoning" in messages_chat(*bare).messages[-2]


@pytest.mark.parametrize(
    ("management", "words"),
    [
        ({"edits": [{"type": "clear_tool_uses_20250919"}]}, "context_management.edits[0]"),
        ({"edits": [KEEP_ALL, {**KEEP_ALL, "keep": 1}]}, "context_management.edits[1].keep"),
        ({"edits": [{**KEEP_ALL, "more": 1}]}, "context_management.edits[0] is not"),
        ({"edits": [keeping(0)]}, "context_management.edits[0].keep"),
        ({"edits": [KEEP_ALL, keeping(1)]}, "context_management.edits[1] is a second"),
        ({"compact": True}, "`context_management.compact`"),
    ],
)
def test_other_edits_are_rejected_by_name(management: dict[str, Any], words: str) -> None:
    """The error names the position of an edit that is not supported, is invalid, or comes again."""
    with pytest.raises(InvalidRequest) as raised:
        messages_chat(context_management=management)

    assert words in raised.value.message
