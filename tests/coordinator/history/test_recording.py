"""Recording: what is kept of choices, as text or as parsers read it, when they have ended and not before."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from coordinator.history.conversation import Conversation
from coordinator.history.recording import Recording
from coordinator.history.turns import Ending
from coordinator.output.collect import CollectedReply
from coordinator.parsing.message import MessageDelta
from coordinator.request import Finish
from tests.coordinator.api.replies import ScriptedParser, tool_call
from tokenwire.errors import EngineFailed


class Kept(Conversation):
    """Remembers what it is given."""

    def __init__(self) -> None:
        super().__init__(None, None)
        self.kept: list[tuple[Mapping[str, Any], Sequence[int], Ending]] = []

    def record(
        self, prompt: Sequence[int], reply: Mapping[str, Any], completion: Sequence[int], ending: Ending
    ) -> None:
        """Remember."""
        self.kept.append((reply, list(completion), ending))


@pytest.mark.parametrize(
    ("finish", "ending"),
    [
        (Finish("stop"), "token"),
        (Finish("stop", 7), "token"),
        (Finish("stop", "STOP"), "string"),
        (Finish("length"), "cut"),
        (Finish("abort"), "cut"),
        (Finish("repetition", "repetition_detected"), "cut"),
    ],
)
async def test_a_choice_is_kept_as_its_text_when_it_ends(finish: Finish, ending: Ending) -> None:
    """Each choice by itself; the reply hears everything that it would have heard."""
    conversation, reply = Kept(), CollectedReply(2)
    heard = Recording(conversation, [1], 2, parsed=False).listen(reply)

    heard.delta(1, "a", [5], None)
    heard.delta(0, "b", [6], None)
    assert conversation.kept == []
    heard.delta(1, "", [7], finish)

    assert conversation.kept == [({"role": "assistant", "content": "a"}, [5, 7], ending)]
    assert heard.tokens_of(1) == 2
    heard.delta(0, "", [8], finish)
    assert [choice.token_ids for choice in await reply.wait()] == [[6, 8], [5, 7]]


async def test_a_choice_that_fails_is_not_kept() -> None:
    """What was said so far is no reply that the client would send back."""
    conversation, reply = Kept(), CollectedReply(1)
    heard = Recording(conversation, [1], 1, parsed=False).listen(reply)

    heard.delta(0, "a", [5], None)
    heard.fail(EngineFailed("broken"))

    with pytest.raises(EngineFailed):
        await reply.wait()
    assert conversation.kept == []


async def test_a_parsed_choice_is_kept_as_the_message_that_was_streamed() -> None:
    """Reasoning, content and calls are put together from their deltas; the ids are those of all of it."""
    deltas = [
        MessageDelta(reasoning="so "),
        MessageDelta(reasoning="then"),
        None,
        MessageDelta(content="Yes"),
        tool_call(0, name="f"),
        tool_call(0, '{"a": '),
        tool_call(0, "1}"),
        tool_call(1, "{}", name="g"),
    ]
    conversation = Kept()
    recording = Recording(conversation, [1], 1, parsed=True)
    heard = recording.listen(CollectedReply(1))
    parser = recording.listen_to_parser(0, ScriptedParser(deltas))

    for number in range(len(deltas)):
        finish = Finish("stop") if number == len(deltas) - 1 else None
        heard.delta(0, "x", [number], finish)
        assert parser.delta("x", [number], finish is not None) == deltas[number]

    ((message, ids, ending),) = conversation.kept
    assert message == {
        "role": "assistant",
        "content": "Yes",
        "reasoning": "so then",
        "tool_calls": [
            {"type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}},
            {"type": "function", "function": {"name": "g", "arguments": "{}"}},
        ],
    }
    assert ids == list(range(len(deltas)))
    assert ending == "token"
    assert parser.finish_reason("stop") == "stop"


async def test_a_parsed_choice_is_kept_as_the_whole_message() -> None:
    """The parser reads it after the reply has ended; until then nothing is kept."""
    conversation = Kept()
    recording = Recording(conversation, [1], 1, parsed=True)
    recording.listen(CollectedReply(1)).delta(0, "Yes", [5], Finish("length"))
    assert conversation.kept == []

    recording.listen_to_parser(0, ScriptedParser([])).whole("Yes", [5], "length")

    assert conversation.kept == [({"role": "assistant", "content": "Yes"}, [5], "cut")]
