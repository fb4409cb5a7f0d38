"""Recording stores choices when they have ended, as text or as parsed messages."""

from collections.abc import Sequence

import pytest

from tokenwire.coordinator.history.request_history import Message, RequestHistory
from tokenwire.coordinator.history.turns import Ending
from tokenwire.coordinator.history.writer import HistoryWriter
from tokenwire.coordinator.output.collect import CollectedReply
from tokenwire.coordinator.types import Finish, Prefill
from tokenwire.errors import EngineFailed


class RecordedHistory(RequestHistory):
    """Collects the replies that it is given."""

    def __init__(self) -> None:
        super().__init__(None, None)
        self.kept: list[tuple[Sequence[Message], Sequence[int], Ending]] = []

    def store(self, prompt: Sequence[int], reply: Sequence[Message], completion: Sequence[int], ending: Ending) -> None:
        """Collect the reply."""
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
async def test_a_choice_is_stored_as_its_text_at_its_end(finish: Finish, ending: Ending) -> None:
    """Each choice separately; the wrapped reply receives everything unchanged."""
    history, reply = RecordedHistory(), CollectedReply(2)
    wrapped = HistoryWriter(history, [1], 2, parsed=False, end_token_ids=[7]).wrap(reply)

    wrapped.delta(1, "a", [5], None)
    wrapped.delta(0, "b", [6], None)
    assert history.kept == []
    wrapped.delta(1, "", [7], finish)

    assert history.kept == [([{"role": "assistant", "content": "a"}], [5, 7], ending)]
    assert wrapped.tokens_of(1) == 2
    wrapped.delta(0, "", [8], finish)
    assert [choice.token_ids for choice in await reply.wait()] == [[6, 8], [5, 7]]


async def test_prefills_and_first_tokens_pass_through() -> None:
    """Usage and metrics have them where a reply is recorded too."""
    reply = CollectedReply(1)
    wrapped = HistoryWriter(RecordedHistory(), [1], 1, parsed=False, end_token_ids=[]).wrap(reply)

    wrapped.prefilled(0, Prefill(3))
    wrapped.first_tokens()

    assert reply.progress.cached_tokens == [3]
    assert reply.progress.first_at is not None


async def test_a_failed_choice_is_not_stored() -> None:
    """Its output is no reply that the client would send back."""
    history, reply = RecordedHistory(), CollectedReply(1)
    wrapped = HistoryWriter(history, [1], 1, parsed=False).wrap(reply)

    wrapped.delta(0, "a", [5], None)
    wrapped.fail(EngineFailed("broken"))

    with pytest.raises(EngineFailed):
        await reply.wait()
    assert history.kept == []


async def test_a_parsed_choice_is_stored_as_it_was_returned() -> None:
    """The route that returns the message stores it; the text of its steps is not used."""
    history = RecordedHistory()
    history_writer = HistoryWriter(history, [1], 1, parsed=True)
    wrapped = history_writer.wrap(CollectedReply(1))
    wrapped.delta(0, "<think>so</think>", [5, 6], None)
    wrapped.delta(0, "Yes", [7], Finish("length"))
    assert history.kept == []

    shown: list[Message] = [{"role": "assistant", "content": "Yes", "reasoning": "so"}]
    history_writer.keep(0, shown)

    assert history.kept == [(shown, [5, 6, 7], "cut")]


async def test_unparsed_text_is_stored_once() -> None:
    """The route's own call stores nothing."""
    history = RecordedHistory()
    history_writer = HistoryWriter(history, [1], 1, parsed=False)
    history_writer.wrap(CollectedReply(1)).delta(0, "Yes", [5], Finish("stop"))

    history_writer.keep(0, [{"role": "assistant", "content": "No"}])

    assert history.kept == [([{"role": "assistant", "content": "Yes"}], [5], "token")]
