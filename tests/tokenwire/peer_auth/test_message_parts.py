"""What reading a message takes is bounded before it is read."""

from collections.abc import Callable
from typing import Any

import pytest

from tokenwire.peer_auth.message_parts import MOST_PARTS, BoundedChannel
from tokenwire.v1 import inference_pb2 as pb

_MOST_NUMBER_BYTES = 2**20


class FakeChannel:
    """Hands out how it would read."""

    def stream_stream(self, path: str, response_deserializer: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
        """Return what reads a message."""
        return response_deserializer

    async def close(self) -> None:
        """Do nothing."""


def read_bounded(data: bytes, most_number_bytes: int = _MOST_NUMBER_BYTES) -> pb.SessionResponse | None:
    """Read a message as a session does."""
    channel = BoundedChannel(FakeChannel(), most_number_bytes)  # type: ignore[arg-type]
    found: pb.SessionResponse | None = channel.stream_stream("/", response_deserializer=pb.SessionResponse.FromString)(
        data
    )
    return found


def field_of(field: int, data: bytes) -> bytes:
    """Return a field of bytes, or of a message."""
    size, digits = len(data), b""
    while size > 0x7F:
        digits, size = digits + bytes([size & 0x7F | 0x80]), size >> 7
    return bytes([field << 3 | 2]) + digits + bytes([size]) + data


_FRAME, _HEARTBEAT, _LOAD, _FINISH, _LOGPROBS, _TOKEN_IDS = 2, 6, 7, 4, 6, 3


@pytest.mark.parametrize(
    "message",
    [
        field_of(_FRAME, field_of(_FINISH, b"") * (MOST_PARTS + 1)),
        field_of(_FRAME, field_of(_LOAD, b"") * (MOST_PARTS + 1)),
        field_of(_FRAME, field_of(_LOGPROBS, field_of(2, b"") * (MOST_PARTS + 1))),
        field_of(_FRAME, b"\x08\x01" * (MOST_PARTS + 1)),
        field_of(_HEARTBEAT, b"") * (MOST_PARTS + 1),
        field_of(_FRAME, field_of(_TOKEN_IDS, b"\x01" * (_MOST_NUMBER_BYTES + 1))),
    ],
    ids=["many ends", "a field again and again", "deep within", "numbers by themselves", "events", "packed numbers"],
)
def test_messages_of_many_parts_are_not_read(message: bytes) -> None:
    """Wherever the parts are."""
    assert read_bounded(message) is None


@pytest.mark.parametrize("message", [b"\xff" * 200_000, field_of(_FRAME, b"\x00" * 200_000)[:-1], b"\x13" * 200_000])
def test_large_messages_that_are_malformed_are_not_read(message: bytes) -> None:
    """A number without an end, a message that is cut off, a group."""
    assert read_bounded(message) is None


def test_what_a_worker_may_send_is_read() -> None:
    """Small messages with anything, and large ones: of results, tokens, and log-probabilities of a prompt."""
    count = 5_000
    ends = [pb.Finish(slot=slot, pooled=pb.Pooled(shape=[2], data=b"12345678")) for slot in range(1, count)]
    rows = pb.LogprobRows(width=21, token_ids=[100_000] * count, logprobs=[-1.0] * count, sampled_ranks=[1] * count)
    frame = pb.StepFrame(
        slots=[*range(count)], token_ids=[7] * count, finishes=ends, prefills=[pb.PrefillInfo(prompt_logprobs=rows)]
    )
    floats = pb.StepFrame(sampled_logprobs=[-1.0] * 2**20)
    for event in (pb.SessionResponse(frame=frame), pb.SessionResponse(frame=floats), pb.SessionResponse()):
        assert read_bounded(event.SerializeToString()) == event


def test_many_numbers_are_read_beside_their_log_probabilities_only() -> None:
    """However many there may be: by themselves they take eight times their bytes."""
    rows = pb.LogprobRows(width=1, token_ids=[100_000] * 3_000_000)
    bare = pb.SessionResponse(frame=pb.StepFrame(prefills=[pb.PrefillInfo(prompt_logprobs=rows)]))
    rows.logprobs.extend([-1.0] * 3_000_000)
    scored = pb.SessionResponse(frame=pb.StepFrame(prefills=[pb.PrefillInfo(prompt_logprobs=rows)]))

    assert read_bounded(bare.SerializeToString(), 2**26) is None
    assert read_bounded(scored.SerializeToString(), 2**26) == scored
    assert read_bounded(scored.SerializeToString(), 2**23) is None
