"""Conversations share the messages that they begin with, and take memory for their own alone."""

import tracemalloc

from tests.coordinator.trajectories.turns import said_by_user
from tokenwire.coordinator.trajectories.turn_messages import TurnMessages

A, B, C, D = (said_by_user(text) for text in "abcd")


def test_a_conversation_goes_on_after_a_part_of_another() -> None:
    """And so on; nothing of what the other one has after that part is in it."""
    first = TurnMessages([A, B])
    second = TurnMessages([C], first, 1)
    third = TurnMessages([D], second, 2)

    assert [each.after(0) for each in (first, second, third)] == [[A, B], [A, C], [A, C, D]]
    assert [third.after(start) for start in (1, 2, 3, 4)] == [[C, D], [D], [], []]
    assert len(third) == 3
    assert TurnMessages([D], first, 7).after(0) == [A, B, D]
    assert len(TurnMessages([D], None, 7)) == 1


def test_what_conversations_have_in_common_is_found_whether_or_not_they_share_it() -> None:
    """Also beyond what they share."""
    first = TurnMessages([A, B, C])
    second = TurnMessages([dict(B), D], first, 1)

    assert first.in_common(first) == 3
    assert first.in_common(second) == second.in_common(first) == 2
    assert first.in_common(TurnMessages([dict(A), D])) == 1
    assert first.in_common(TurnMessages([])) == 0


def test_equal_messages_have_one_digest_whether_or_not_they_are_shared() -> None:
    """The beginnings of a conversation are named, the longest one first, with the message after each."""
    first = TurnMessages([A, B, C])
    third = TurnMessages([C], TurnMessages([B, D], first, 1), 2)

    assert third.digest == TurnMessages([A, dict(B), C]).digest == first.digest
    assert [*third.beginnings()] == [(TurnMessages([A, B]).digest, C), (TurnMessages([A]).digest, B)]
    assert TurnMessages([A], first, 0).digest == TurnMessages([A]).digest
    assert len({TurnMessages(said).digest for said in ([A, B], [B, A], [A], [])}) == 4
    assert [*TurnMessages([]).beginnings()] == []


def test_a_long_session_takes_memory_for_each_message_once() -> None:
    """Not for each of its turns."""
    tracemalloc.start()
    try:
        turns = [TurnMessages([A])]
        for _ in range(3000):
            turns.append(TurnMessages([B, A], turns[-1], len(turns[-1])))
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert len(turns[-1]) == 6001
    assert taken < 1000 * len(turns)  # lists of all messages take 24,000 for each
