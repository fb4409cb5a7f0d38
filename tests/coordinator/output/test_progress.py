"""Times and finishes of a reply."""

from tests.clock import Clock
from tokenwire.coordinator.output.progress import Progress
from tokenwire.coordinator.types import Finish


def test_the_first_of_all_choices_and_the_last_finish_count(time: Clock) -> None:
    """A reply has one time to its first token, and one of its end."""
    progress = Progress([0, 0], clock=time)

    progress.on_first_tokens()
    time.now += 1
    progress.on_first_tokens()
    time.now += 1
    progress.on_finish(Finish("stop"))
    time.now += 1
    progress.on_finish(Finish("length"))

    assert progress.first_at is not None
    assert progress.last_at == progress.first_at + 3
    assert [finish.reason for finish in progress.finishes] == ["stop", "length"]


def test_a_reply_without_tokens_has_no_times() -> None:
    """It failed or was aborted before."""
    progress = Progress([0])

    assert (progress.first_at, progress.last_at, progress.failure) == (None, None, None)
