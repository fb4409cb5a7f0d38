"""Which resumed requests were aborted before."""

import pytest

from tests.clock import Clock
from tests.workers import submit_message
from tokenwire.v1 import inference_pb2 as pb
from tokenwire.worker.services import recent_aborts
from tokenwire.worker.services.recent_aborts import RecentAborts


def resumed(request_id: str, after_s: float) -> pb.Submit:
    """Return the submit of a request that was first sent a while ago."""
    submit = submit_message(request_id=request_id)
    submit.resumed_after_ms = int(after_s * 1000)
    return submit


@pytest.mark.parametrize("request_ids", [["x"], None])
def test_a_resumed_request_was_aborted_if_it_is_older_than_the_abort(request_ids: list[str] | None) -> None:
    """By its id, or with all; one that was sent later, under the same id too, was not."""
    clock = Clock()
    aborts = RecentAborts(clock)
    aborts.record(request_ids)
    clock.now += 5

    assert aborts.include(resumed("x", after_s=6))
    assert not aborts.include(resumed("x", after_s=4))
    assert aborts.include(resumed("y", after_s=6)) is (request_ids is None)


def test_a_new_request_was_not_aborted() -> None:
    """Clients may use an id again."""
    aborts = RecentAborts(Clock())
    aborts.record(["x"])
    aborts.record(None)

    assert not aborts.include(submit_message(request_id="x"))


def test_ids_expire_after_ten_minutes() -> None:
    """As soon as others are recorded; the time of an id that is aborted again is the later one."""
    clock = Clock()
    aborts = RecentAborts(clock)
    aborts.record(["old", "again"])
    clock.now += 400
    aborts.record(["again"])
    clock.now += 300
    aborts.record(["new"])

    assert not aborts.include(resumed("old", after_s=900))
    assert aborts.include(resumed("again", after_s=900))
    assert aborts.include(resumed("new", after_s=900))


def test_the_number_of_ids_is_bounded() -> None:
    """The newest are kept."""
    clock = Clock()
    aborts = RecentAborts(clock)
    aborts.record(["first"])
    aborts.record(map(str, range(recent_aborts._MOST_IDS)))

    assert not aborts.include(resumed("first", after_s=1))
    assert aborts.include(resumed("0", after_s=1))
