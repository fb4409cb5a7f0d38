"""Whether a message parsed as a whole continues what a stream has sent: then both forms of a reply say the same."""

import json
from collections.abc import Sequence
from typing import Any

from tokenwire.coordinator.parsing.message import MessageDelta, RawMessage, ToolCallDelta, merge_all
from tokenwire.coordinator.parsing.rules import ParsedToolCall


def joined(deltas: Sequence[MessageDelta]) -> RawMessage:
    """Return the message that deltas add up to."""
    whole = merge_all(deltas)
    calls = [ParsedToolCall(call.id or "", call.name or "", call.arguments or "") for call in whole.tool_calls]
    return whole.reasoning, whole.content, tuple(calls)


def agreed(sent: RawMessage, whole: RawMessage, reasons: bool = True) -> RawMessage:
    """Return the message of a reply, in both of its forms: the whole one, or what a stream has sent against it.

    Text that a stream has sent and the whole message lacks, such as text between calls, is kept beside the whole
    message's calls. `reasons`: whether reasoning is sent at all.
    """
    more = _more(sent[0], whole[0]) if reasons else ""
    if more is None or (more and (sent[1] or sent[2])) or _more_calls(sent[2], whole[2]) is None:
        return sent
    return (whole[0], sent[1], whole[2]) if _more(sent[1], whole[1]) is None else whole


def unsent(sent: RawMessage, message: RawMessage, reasons: bool = True) -> MessageDelta | None:
    """Return what a stream still has to send of the message that was agreed on; None: nothing.

    Arguments are compared as JSON values, and texts without white space at their ends: a stream has sent it before it
    is known what follows.
    """
    content, reasoning = _more(sent[1], message[1]), _more(sent[0], message[0]) if reasons else None
    calls = _more_calls(sent[2], message[2])
    return MessageDelta(content or None, reasoning or None, calls or ()) if content or reasoning or calls else None


def _more(sent: str | None, whole: str | None) -> str | None:
    """Return what comes after the text that was sent; None: the whole text does not begin with it."""
    sent, whole = sent or "", whole or ""
    if whole.startswith(sent):
        more = whole[len(sent) :]
        return more if more.strip() else ""
    sent, whole = sent.strip(), whole.strip()
    return whole[len(sent) :] if whole.startswith(sent) else None


def _more_calls(sent: Sequence[ParsedToolCall], whole: Sequence[ParsedToolCall]) -> tuple[ToolCallDelta, ...] | None:
    if len(sent) > len(whole):
        return None
    more = []
    for index, call in enumerate(whole):
        if index >= len(sent):
            more.append(ToolCallDelta(index, call.id, call.name, call.arguments))
            continue
        arguments = _more_arguments(sent[index].arguments, call.arguments)
        if sent[index].name != call.name or arguments is None:
            return None
        if arguments:
            more.append(ToolCallDelta(index, arguments=arguments))
    return tuple(more)


def _more_arguments(sent: str, whole: str) -> str | None:
    if sent == whole or _value(sent) == _value(whole):
        return ""
    return whole[len(sent) :] if whole.startswith(sent) else None


def _value(arguments: str) -> Any:
    try:
        return json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
