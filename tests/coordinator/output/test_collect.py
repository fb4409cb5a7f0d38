"""Replies that are not streamed."""

import pytest

from tokenwire.coordinator.output.collect import CollectedReply
from tokenwire.coordinator.types import Finish
from tokenwire.errors import WorkerLost


async def test_all_choices_are_awaited() -> None:
    """`wait` returns when the last choice has ended, with the text, ids and finish of each."""
    reply = CollectedReply(2)
    reply.delta(1, "x", [9], Finish("stop", "y"))
    reply.delta(0, "a", [1], None)
    reply.delta(0, "b", [2], Finish("length"))

    first, second = await reply.wait()

    assert (first.text, first.token_ids, first.finish) == ("ab", [1, 2], Finish("length"))
    assert (second.text, second.token_ids, second.finish) == ("x", [9], Finish("stop", "y"))


async def test_the_first_error_ends_the_reply() -> None:
    """One failed choice fails the reply."""
    reply = CollectedReply(2)

    reply.fail(WorkerLost("gone"))
    reply.fail(WorkerLost("also"))

    with pytest.raises(WorkerLost, match="gone"):
        await reply.wait()


async def test_giving_up_ends_the_wait() -> None:
    """When the client has disconnected, `wait` returns the output so far."""
    reply = CollectedReply(1)

    reply.give_up()

    assert (await reply.wait())[0].finish.reason == "abort"
