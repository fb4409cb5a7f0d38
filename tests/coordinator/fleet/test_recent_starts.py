"""Requests that a worker had just started when it died."""

import weakref

from tokenwire.coordinator.fleet.recent_starts import RecentStarts
from tokenwire.coordinator.fleet.submission import Submission
from tokenwire.coordinator.media.content import MediaContent, MediaPrompt
from tokenwire.v1 import inference_pb2 as pb


def named_submit(name: str) -> Submission:
    """Return a request."""
    return Submission(request_id=name)


def prefill(*slots: int) -> pb.StepFrame:
    """Return the first token of some slots."""
    return pb.StepFrame(slots=slots, token_ids=[1] * len(slots), prefills=[pb.PrefillInfo(slot=slot) for slot in slots])


def finish_frame(slot: int, reason: "pb.FinishReason" = pb.FINISH_REASON_LENGTH) -> pb.StepFrame:
    """Return the end of a slot."""
    return pb.StepFrame(finishes=[pb.Finish(slot=slot, reason=reason)])


def test_requests_are_recent_until_a_few_frames_after_their_first_token() -> None:
    """Also those whose slots were aborted, until they end."""
    survivors: list[Submission] = []
    recent_starts = RecentStarts(survivors.append)
    old, young, waiting = named_submit("old"), named_submit("young"), named_submit("waiting")
    for slot, each in enumerate((old, young, waiting)):
        recent_starts.on_submit([slot], each)
    recent_starts.on_frame(prefill(0))
    for _ in range(3):
        recent_starts.on_frame(pb.StepFrame())
    recent_starts.on_frame(prefill(1))

    assert recent_starts.take_all() == [young, waiting]
    assert survivors == [old]
    assert recent_starts.take_all() == []


def test_what_has_ended_is_not_kept() -> None:
    """Without another request there is no further frame, and its pictures would count for as long."""
    recent_starts, picture = RecentStarts(), MediaContent(b"x")
    held = weakref.ref(picture)
    recent_starts.on_submit([0], Submission(media=MediaPrompt([picture], [1], 1, [(0, 1)])))
    del picture
    recent_starts.on_frame(prefill(0))
    assert held() is not None
    recent_starts.on_frame(finish_frame(0))
    assert held() is None


def test_finishes() -> None:
    """A finished reply has survived; one that was aborted or refused is only removed."""
    survivors: list[Submission] = []
    recent_starts = RecentStarts(survivors.append)
    for slot in range(3):
        recent_starts.on_submit([slot], named_submit(str(slot)))
    recent_starts.on_frame(finish_frame(0))
    recent_starts.on_frame(finish_frame(1, pb.FINISH_REASON_ABORT))
    recent_starts.on_refusal([2])

    assert recent_starts.take_all() == []
    assert survivors == [named_submit("0")]


def test_a_request_of_many_sequences_survives_once_in_a_frame() -> None:
    """However many of them the frame ends: a batch of inputs has thousands."""
    survivors: list[Submission] = []
    recent_starts = RecentStarts(survivors.append)
    batch, other = named_submit("batch"), named_submit("other")
    recent_starts.on_submit(range(8), batch)
    recent_starts.on_submit([8], other)
    finishes = [pb.Finish(slot=slot, reason=pb.FINISH_REASON_STOP) for slot in range(9)]
    recent_starts.on_frame(pb.StepFrame(finishes=finishes))

    assert survivors == [batch, other]
    assert recent_starts.take_all() == []


def test_a_reused_slot_is_another_request() -> None:
    """The first request does not affect the second."""
    recent_starts = RecentStarts()
    recent_starts.on_submit([0], named_submit("first"))
    recent_starts.on_frame(prefill(0))
    recent_starts.on_frame(finish_frame(0))
    second = named_submit("second")
    recent_starts.on_submit([0], second)
    for _ in range(5):
        recent_starts.on_frame(pb.StepFrame())

    assert recent_starts.take_all() == [second]


def test_a_request_of_several_sequences_is_one_request() -> None:
    """It is recent as long as one of them is."""
    recent_starts = RecentStarts()
    recent_starts.on_submit([0, 1], named_submit("several"))
    recent_starts.on_frame(finish_frame(0))
    assert recent_starts.take_all() == [named_submit("several")]
