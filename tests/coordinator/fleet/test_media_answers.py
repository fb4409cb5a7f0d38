"""Tests of what workers may answer to calls for media."""

import pytest

from tokenwire.coordinator.fleet.media_answers import check_missing, expansion_of
from tokenwire.coordinator.media.content import MediaContent
from tokenwire.errors import PromptTooLong, ProtocolError
from tokenwire.v1 import inference_pb2 as pb

ITEM = MediaContent(b"x")
SPAN = pb.MediaSpan(offset=1, length=3)
MOST = 10


def test_an_expansion_has_the_ids_and_a_place_for_each_item() -> None:
    """Of which the longest prompt is one."""
    token_ids, spans = expansion_of(pb.ExpandResponse(token_ids=[1] * MOST, spans=[SPAN]), [ITEM], MOST)
    assert (token_ids, spans) == ([1] * MOST, [(1, 3)])


@pytest.mark.parametrize(
    "answer",
    [
        pb.ExpandResponse(token_ids=[1]),
        pb.ExpandResponse(token_ids=[1], spans=[SPAN]),
        pb.ExpandResponse(token_ids=[1] * 9, spans=[SPAN, SPAN]),
        pb.ExpandResponse(token_ids=[1] * (MOST + 1), spans=[SPAN]),
        pb.ExpandResponse(length=MOST),
    ],
)
def test_a_worker_cannot_claim_impossible_ids_and_places(answer: pb.ExpandResponse) -> None:
    """There is one place for each item, within the prompt, which is no longer than it may be."""
    with pytest.raises(ProtocolError):
        expansion_of(answer, [ITEM], MOST)


def test_a_worker_may_say_that_a_prompt_is_too_long() -> None:
    """Then the client hears how long it is."""
    with pytest.raises(PromptTooLong, match="contains 11 input tokens"):
        expansion_of(pb.ExpandResponse(length=MOST + 1), [ITEM], MOST)


def test_a_worker_lacks_only_what_was_named() -> None:
    """Each item once."""
    check_missing([ITEM.digest], [ITEM, ITEM])
    for missing in ([b"another"], [ITEM.digest] * 2):
        with pytest.raises(ProtocolError):
            check_missing(missing, [ITEM, ITEM])
