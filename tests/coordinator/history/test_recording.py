"""Recording: what is kept of choices, as text or as parsers read it, when they have ended and not before."""

from collections.abc import Sequence

import pytest

from tokenwire.coordinator.history.conversation import Conversation, Message, Record
from tokenwire.coordinator.history.digests import Transcript
from tokenwire.coordinator.history.recording import Recording
from tokenwire.coordinator.history.store import MemoryStore
from tokenwire.coordinator.history.turns import Ending, Turn
from tokenwire.coordinator.output.collect import CollectedReply
from tokenwire.coordinator.types import Finish
from tokenwire.errors import EngineFailed


class Kept(Conversation):
    """Remembers what it is given."""

    def __init__(self) -> None:
        super().__init__(None, None)
        self.kept: list[tuple[Sequence[Message], Sequence[int], Ending]] = []

    def record(
        self, prompt: Sequence[int], reply: Sequence[Message], completion: Sequence[int], ending: Ending
    ) -> None:
        """Remember."""
        self.kept.append((reply, list(completion), ending))


@pytest.mark.parametrize(
    ("finish", "ending"),
    [
        (Finish("stop"), "token"),
        (Finish("stop", 7), "token"),
        (Finish("stop", 8), "stop"),
        (Finish("stop", "STOP"), "stop"),
        (Finish("length"), "cut"),
        (Finish("abort"), "cut"),
        (Finish("repetition", "repetition_detected"), "cut"),
    ],
)
async def test_a_choice_is_kept_as_its_text_when_it_ends(finish: Finish, ending: Ending) -> None:
    """Each choice by itself; the reply hears everything that it would have heard."""
    conversation, reply = Kept(), CollectedReply(2)
    heard = Recording(conversation, [1], 2, parsed=False, stop_token_ids=[8]).listen(reply)

    heard.delta(1, "a", [5], None)
    heard.delta(0, "b", [6], None)
    assert conversation.kept == []
    heard.delta(1, "", [7], finish)

    assert conversation.kept == [([{"role": "assistant", "content": "a"}], [5, 7], ending)]
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


async def test_a_choice_that_a_parser_reads_is_kept_as_it_was_shown() -> None:
    """Whoever shows the message keeps it; the text and the ids of all steps say nothing of that."""
    conversation = Kept()
    recording = Recording(conversation, [1], 1, parsed=True)
    heard = recording.listen(CollectedReply(1))
    heard.delta(0, "<think>so</think>", [5, 6], None)
    heard.delta(0, "Yes", [7], Finish("length"))
    assert conversation.kept == []

    shown: list[Message] = [{"role": "assistant", "content": "Yes", "reasoning": "so"}]
    recording.keep(0, shown)

    assert conversation.kept == [(shown, [5, 6, 7], "cut")]


def test_choices_share_the_turn_of_their_prompt() -> None:
    """However many a request has, the prompt is held once."""

    turns: list[Turn] = []

    class Store(MemoryStore):
        def put(self, keys: Sequence[bytes], turn: Turn) -> None:
            turns.append(turn)

    transcript = Transcript(b"", [{"role": "user", "content": "One?"}], "string")
    conversation = Conversation(None, Record(Store(1, 1.0), transcript, None))
    for text in "ab":
        conversation.record([1, 2], [{"role": "assistant", "content": text}], [3], "token")

    first, second = turns
    assert first.parent is second.parent
    assert list(first.all_ids()) == [1, 2, 3]


async def test_a_text_that_nobody_parses_is_kept_once() -> None:
    """What shows it has nothing to add."""
    conversation = Kept()
    recording = Recording(conversation, [1], 1, parsed=False)
    recording.listen(CollectedReply(1)).delta(0, "Yes", [5], Finish("stop"))

    recording.keep(0, [{"role": "assistant", "content": "No"}])

    assert conversation.kept == [([{"role": "assistant", "content": "Yes"}], [5], "token")]
