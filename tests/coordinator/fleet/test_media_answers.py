"""Tests of what workers may answer to calls for media."""

from collections.abc import AsyncIterator

import pytest

from tokenwire.coordinator.fleet.media_answers import Expansion, check_missing, expansion_of, rendered
from tokenwire.coordinator.media.content import MediaContent
from tokenwire.errors import PromptTooLong, ProtocolError
from tokenwire.peer_auth.grpc_options import FEATURES_PART_BYTES, MOST_MEDIA_BYTES, MOST_TENSOR_BYTES
from tokenwire.v1 import inference_pb2 as pb

ITEM = MediaContent(b"x")
SPAN = pb.MediaSpan(offset=1, length=3)
MOST = 10
FIRST = pb.ExpandResponse(token_ids=[1])
WHOLE = pb.ExpandResponse(features_json=b" " * FEATURES_PART_BYTES)
LAST = pb.ExpandResponse(features_json=b"{}")


def test_an_expansion_has_the_ids_and_a_place_for_each_item() -> None:
    """Of which the longest prompt is one."""
    expanded = expansion_of(pb.ExpandResponse(token_ids=[1] * MOST, spans=[SPAN]), [ITEM], MOST)
    assert expanded == Expansion([1] * MOST, [(1, 3)])


@pytest.mark.parametrize(
    "answer",
    [
        pb.ExpandResponse(token_ids=[1]),
        pb.ExpandResponse(token_ids=[1], spans=[SPAN]),
        pb.ExpandResponse(token_ids=[1] * 9, spans=[SPAN, SPAN]),
        pb.ExpandResponse(spans=[pb.MediaSpan()]),
        pb.ExpandResponse(token_ids=[1] * (MOST + 1), spans=[SPAN]),
        pb.ExpandResponse(length=MOST),
        pb.ExpandResponse(token_ids=[1] * MOST, spans=[SPAN], features_json=b"{}"),
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


async def answer_of(*parts: pb.ExpandResponse) -> AsyncIterator[pb.RenderResponse]:
    """Yield the parts of an answer."""
    for part in parts:
        yield pb.RenderResponse(part=part)


async def test_features_come_in_parts_behind_an_expansion() -> None:
    """Which has the ids alone."""
    first, features = await rendered(answer_of(FIRST, WHOLE, LAST), "none")
    assert (first, features) == (FIRST, WHOLE.features_json + b"{}")


@pytest.mark.parametrize(
    "parts", [[], [FIRST, LAST, LAST], [FIRST, FIRST], [FIRST, WHOLE, pb.ExpandResponse()]], ids=["0", "1", "2", "3"]
)
async def test_a_worker_cannot_send_other_parts(parts: list[pb.ExpandResponse]) -> None:
    """All but the last one are large, and have nothing but features."""
    with pytest.raises(ProtocolError, match="rendered pictures to"):
        await rendered(answer_of(*parts), "tensors")


@pytest.mark.parametrize(
    ("mm_payload", "most"), [("none", MOST_MEDIA_BYTES), ("tensors", MOST_MEDIA_BYTES + MOST_TENSOR_BYTES * 4 // 3)]
)
async def test_features_are_as_large_as_their_kind_may_be(mm_payload: str, most: int) -> None:
    """More are read only where tensors are asked for, and not for ever."""
    count = most // FEATURES_PART_BYTES
    _, features = await rendered(answer_of(FIRST, *[WHOLE] * count), mm_payload)
    assert len(features) == count * FEATURES_PART_BYTES
    with pytest.raises(ProtocolError, match=f"more than {most} bytes"):
        await rendered(answer_of(FIRST, *[WHOLE] * (count + 1)), mm_payload)


def test_features_that_are_asked_for_cannot_be_left_out() -> None:
    """An empty text is no JSON."""
    answer = pb.ExpandResponse(token_ids=[1] * MOST, spans=[SPAN])
    assert expansion_of(answer, [ITEM], MOST, b"{}").features_json == b"{}"
    with pytest.raises(ProtocolError, match="or none that were"):
        expansion_of(answer, [ITEM], MOST, b"")
