"""Anthropic's context_management: edits that remove parts of a long conversation from the prompt."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ConfigDict, Field

from tokenwire.coordinator.parsing.request_model import RequestModel
from tokenwire.errors import InvalidRequest

AnthropicMessage = Mapping[str, Any]

_EDIT = "clear_thinking_20251015"
_THINKING = ("thinking", "redacted_thinking")
_DEFAULT_TURNS = 1
"""Anthropic's."""


class ContextManagement(RequestModel):
    """The edits of a request. Only the removal of old thinking is supported."""

    model_config = ConfigDict(extra="allow")

    edits: list[dict[str, Any]] = Field(default_factory=list)

    def edited(self, messages: Sequence[AnthropicMessage]) -> Sequence[AnthropicMessage]:
        """Return the messages after the edits. Raises InvalidRequest for other edits and unknown fields."""
        for name in self.model_extra or ():
            raise InvalidRequest(f"`context_management.{name}` is not supported.", param="context_management")
        turns = None
        for i, edit in enumerate(self.edits):
            turns = _kept_turns(edit, where := f"context_management.edits[{i}]")
            if i:  # each edit walks through all messages
                raise InvalidRequest(
                    f"{where} is a second {_EDIT}: an edit may be given once.", param="context_management"
                )
        return messages if turns is None else _without_old_thinking(messages, turns)


def _kept_turns(edit: Mapping[str, Any], where: str) -> int | None:
    """Return the number of turns whose thinking an edit keeps; None: all. Raises InvalidRequest."""
    if edit.get("type") != _EDIT or edit.keys() - {"type", "keep"}:
        raise InvalidRequest(
            f"{where} is not supported: of edits, only {_EDIT} with `keep` is.", param="context_management"
        )
    match edit.get("keep"):
        case "all" | {"type": "all"}:
            return None
        case None:
            return _DEFAULT_TURNS
        case {"type": "thinking_turns", "value": int(turns)} if turns >= 1:
            return turns
    raise InvalidRequest(
        f'{where}.keep must be "all", or of type "thinking_turns" with a `value` of at least 1.',
        param="context_management",
    )


def _without_old_thinking(messages: Sequence[AnthropicMessage], turns: int) -> list[AnthropicMessage]:
    """Remove thinking from assistant turns, except the last `turns` of those that have some."""
    left: list[AnthropicMessage] = []
    thought = False  # in the current turn, which is walked from its end
    for message in reversed(messages):
        if _has_thinking(message):
            thought = True
            if not turns:
                message = {**message, "content": [block for block in message["content"] if not _is_thinking(block)]}
        elif thought and _begins_turn(message):
            turns, thought = max(0, turns - 1), False
        left.append(message)
    return left[::-1]


def _has_thinking(message: AnthropicMessage) -> bool:
    content = message.get("content")
    return message.get("role") == "assistant" and isinstance(content, list) and any(map(_is_thinking, content))


def _is_thinking(block: object) -> bool:
    return isinstance(block, Mapping) and block.get("type") in _THINKING


def _begins_turn(message: AnthropicMessage) -> bool:
    """Return whether the next assistant message starts a new turn; after tool results the current turn continues."""
    content = message.get("content")
    if message.get("role") != "user" or not isinstance(content, list):
        return message.get("role") == "user"
    return not all(isinstance(block, Mapping) and block.get("type") == "tool_result" for block in content)
