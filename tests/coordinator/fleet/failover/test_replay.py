"""A replay: suppresses the tokens that the client has, however they are divided into frames."""

from array import array

import pytest

from tests.workers import Listener
from tokenwire.coordinator.fleet.failover.replay import Replay
from tokenwire.v1 import inference_pb2 as pb

END = pb.Finish(reason=pb.FINISH_REASON_LENGTH)


class Behind(Listener):
    """A listener that also records the replay's callbacks."""

    def __init__(self) -> None:
        super().__init__()
        self.checked = 0
        self.diverged_at: int | None = None

    def on_verified(self, count: int) -> None:
        """Record the count."""
        self.checked += count

    def on_diverged(self, position: int) -> None:
        """Record the position."""
        self.diverged_at = position


def replay(*known: int) -> tuple[Replay, Behind]:
    """Return a replay of these tokens."""
    behind = Behind()
    return Replay(behind, array("I", known)), behind


def two_columns(*token_ids: int) -> pb.LogprobRows:
    """Return rows of two columns for these tokens."""
    columns = [column for token_id in token_ids for column in (token_id, token_id + 100)]
    return pb.LogprobRows(
        width=2, token_ids=columns, logprobs=[-float(column) for column in columns], sampled_ranks=token_ids
    )


def test_a_frame_with_known_and_new_tokens_is_split() -> None:
    """Tokens and their rows are passed on from the first new one, with their version."""
    listener, behind = replay(1, 2, 3)
    listener.weights("new")
    listener.scored(two_columns(1, 2))
    assert not listener.step([1, 2], None)
    listener.scored(two_columns(3, 4, 5))
    assert behind.rows == []
    assert behind.versions == []

    listener.step([3, 4, 5], END)

    assert (behind.token_ids, behind.finish, behind.checked) == ([4, 5], END, 3)
    assert behind.rows == [two_columns(4, 5)]
    assert behind.versions == [(0, "new")]


def test_new_frames_are_passed_on_unchanged() -> None:
    """Once it has caught up, here exactly at the end of a frame."""
    listener, behind = replay(1, 2)
    listener.step([1, 2], None)
    assert not behind.moved.is_set()

    listener.weights("newer")
    listener.scored(two_columns(3))
    listener.step([3], None)

    assert (behind.token_ids, behind.rows) == ([3], [two_columns(3)])
    assert behind.versions == [(0, ""), (0, "newer")]


def test_how_the_prompt_was_computed_is_passed_on() -> None:
    """The first run may not have come so far."""
    listener, behind = replay(1)
    listener.prefilled(pb.PrefillInfo(cached_tokens=16))
    assert behind.prefills == [pb.PrefillInfo(cached_tokens=16)]


def test_another_token_ends_it() -> None:
    """The listener gets the position of the first difference, and no tokens."""
    listener, behind = replay(1, 2, 3)
    assert listener.step([1, 9], None)
    assert (behind.diverged_at, behind.token_ids) == (1, [])
    assert behind.checked == 2  # its worker generated them, whatever they are


def test_an_earlier_finish_is_a_divergence() -> None:
    """A second run that is shorter than the first one differs."""
    listener, behind = replay(1, 2, 3)
    listener.step([1, 2], END)
    assert behind.diverged_at == 2
    assert behind.finish is None


@pytest.mark.parametrize("reason", [pb.FINISH_REASON_ABORT, pb.FINISH_REASON_ERROR])
@pytest.mark.parametrize("token_ids", [[], [1, 2]])
def test_an_external_finish_may_come_at_any_token(token_ids: list[int], reason: "pb.FinishReason") -> None:
    """An abort or an engine's error while it catches up ends the reply with the tokens that the client has."""
    listener, behind = replay(1, 2, 3)
    finish = pb.Finish(reason=reason)
    listener.step(token_ids, finish)
    assert (behind.token_ids, behind.finish, behind.diverged_at) == ([], finish, None)


def test_an_abort_after_another_token_is_still_a_divergence() -> None:
    """The different token is reported."""
    listener, behind = replay(1, 2, 3)
    listener.step([1, 9], pb.Finish(reason=pb.FINISH_REASON_ABORT))
    assert (behind.diverged_at, behind.finish) == (1, None)


def test_a_finish_at_the_clients_position_is_passed_on() -> None:
    """The first run's worker was lost just before it sent it."""
    listener, behind = replay(1, 2)
    listener.step([1, 2], END)
    assert (behind.token_ids, behind.finish) == ([], END)


def test_a_replay_that_is_handed_back_is_a_loss() -> None:
    """At any position, it has not diverged."""
    listener, behind = replay(1, 2, 3)
    lost = pb.Finish(reason=pb.FINISH_REASON_ERROR, handed_back=True)
    listener.step([1], lost)
    assert (behind.finish, behind.diverged_at, behind.checked) == (lost, None, 1)


def test_what_a_worker_generated_counts_though_it_is_handed_back() -> None:
    """Also what the client will get from another one."""
    listener, behind = replay(1, 2, 3)
    listener.step([1, 2, 3, 4, 5], pb.Finish(reason=pb.FINISH_REASON_ABORT, handed_back=True))
    assert (behind.token_ids, behind.checked) == ([], 5)
    assert (listener.gained, listener.cached_tokens) == (behind.gained, behind.cached_tokens)
