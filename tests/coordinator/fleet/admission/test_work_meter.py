"""What a sequence counts of its tenant's share, from its start to its end."""

import pytest

from tests.workers import Listener
from tokenwire.coordinator.fleet.admission.work_meter import REPLY_TOKENS, WorkMeter
from tokenwire.errors import WorkerLost
from tokenwire.v1 import inference_pb2 as pb

STOP = pb.Finish(reason=pb.FINISH_REASON_STOP)


class StoppingListener(Listener):
    """Stops at its first tokens."""

    def step(self, token_ids: list[int], finish: pb.Finish | None) -> bool:
        """Stop."""
        super().step(token_ids, finish)
        return True


class RecordedAccount:
    """Keeps what it is charged."""

    def __init__(self) -> None:
        self.charged: list[float] = []
        self.running = 0

    def charge(self, tokens: float) -> None:
        """Keep it."""
        self.charged.append(tokens)

    def begin_sequence(self) -> None:
        """Count it."""
        self.running += 1

    def end_sequence(self) -> None:
        """Count it."""
        self.running -= 1


def running_meter(listener: Listener, counts_prompt: bool = False) -> tuple[WorkMeter, list[float]]:
    """Return the meter of a sequence that has started, and what it charges from then on."""
    account = RecordedAccount()
    meter = WorkMeter(listener, account)
    meter.begin(counts_prompt)
    return meter, account.charged


def test_everything_is_passed_on() -> None:
    """The reply is that of the worker."""
    listener = Listener()
    meter, _ = running_meter(listener)

    meter.weights("w")
    meter.prefilled(pb.PrefillInfo(cached_tokens=3))
    meter.scored(pb.LogprobRows(width=1))
    meter.resumed()
    assert not meter.step([1, 2], None)
    assert not meter.step([3], STOP)
    meter.fail(lost := WorkerLost("gone"))

    assert (listener.versions, listener.resumptions, listener.token_ids) == ([(0, "w")], 1, [1, 2, 3])
    assert (listener.prefills, listener.rows) == ([pb.PrefillInfo(cached_tokens=3)], [pb.LogprobRows(width=1)])
    assert (listener.finish, listener.error) == (STOP, lost)


def test_a_short_reply_counts_what_it_has() -> None:
    """What was counted in advance is taken back at its end, once."""
    meter, charged = running_meter(Listener())
    meter.step([1, 2], None)

    meter.step([3], STOP)
    meter.settle()

    assert charged == [3 - REPLY_TOKENS]


def test_more_is_counted_in_advance_only_once_it_is_needed() -> None:
    """Not for a reply that has exactly what was counted."""
    meter, charged = running_meter(Listener())
    meter.step([1] * REPLY_TOKENS, None)
    assert charged == []


def test_a_long_reply_counts_as_it_goes() -> None:
    """And exactly at its end."""
    meter, charged = running_meter(Listener())
    for length in (REPLY_TOKENS, 1, 2 * REPLY_TOKENS):
        meter.step([1] * length, None)

    meter.step([1] * 9, STOP)

    assert charged[:3] == [REPLY_TOKENS] * 3
    assert REPLY_TOKENS + sum(charged) == 3 * REPLY_TOKENS + 10


def test_cached_tokens_of_the_prompt_count_a_tenth() -> None:
    """For the one sequence for which the prompt counts."""
    for counts, expected in ((True, [-90.0]), (False, [])):
        meter, charged = running_meter(Listener(), counts)
        for _ in range(2):
            meter.prefilled(pb.PrefillInfo(cached_tokens=100))
        assert charged == pytest.approx(expected)


def test_a_sequence_that_its_listener_stops_has_ended() -> None:
    """As one that ends by itself."""
    meter, charged = running_meter(StoppingListener())

    assert meter.step([1, 2], None)

    assert charged == [2 - REPLY_TOKENS]


@pytest.mark.parametrize("handed_back", [True, False])
def test_what_was_counted_of_a_sequence_that_may_go_on_elsewhere_stays(handed_back: bool) -> None:
    """Also if it is aborted there."""
    meter, charged = running_meter(Listener())
    if handed_back:
        meter.step([1], pb.Finish(reason=pb.FINISH_REASON_ABORT, handed_back=True))
    else:
        meter.fail(WorkerLost("gone"))

    meter.settle()

    assert charged == []


def test_a_sequence_that_never_started_counts_nothing() -> None:
    """It was aborted in the queue."""
    account = RecordedAccount()

    WorkMeter(Listener(), account).settle()

    assert (account.charged, account.running) == ([], 0)


@pytest.mark.parametrize("end", ["finish", "stop", "abort", "failure", "handed back"])
def test_a_sequence_runs_until_it_ends_however_it_does(end: str) -> None:
    """It is counted once."""
    account = RecordedAccount()
    meter = WorkMeter(StoppingListener() if end == "stop" else Listener(), account)
    meter.begin(False)
    assert account.running == 1
    match end:
        case "finish" | "handed back":
            meter.step([1], pb.Finish(reason=pb.FINISH_REASON_STOP, handed_back=end == "handed back"))
        case "stop":
            meter.step([1], None)
        case "failure":
            meter.fail(WorkerLost("gone"))

    meter.settle()
    meter.settle()

    assert account.running == 0
