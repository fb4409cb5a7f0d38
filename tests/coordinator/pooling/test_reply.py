"""A reply collects one result for each input, whatever a worker sends."""

import pytest

from tests.coordinator.pooling.embedding import pooled_message, pooled_result
from tokenwire.coordinator.pooling.reply import InputListener, PooledReply
from tokenwire.errors import EngineFailed, ProtocolError, Unavailable, WorkerLost
from tokenwire.v1 import inference_pb2 as pb


def end_with(pooled: pb.Pooled) -> pb.Finish:
    """Return the end of an input with its result."""
    return pb.Finish(reason=pb.FINISH_REASON_STOP, pooled=pooled)


async def test_results_come_in_any_order() -> None:
    """They are returned in that of the inputs, once all have come."""
    reply = PooledReply([2] * 2, "float32")
    listeners = [InputListener(index, reply) for index in range(2)]

    listeners[1].step([], end_with(pooled_message([1.0])))
    listeners[0].step([], end_with(pooled_message([2.0])))

    assert await reply.wait() == [pooled_result([2.0]), pooled_result([1.0])]
    assert [listener.cached_tokens for listener in listeners] == [1, 1]


@pytest.mark.parametrize(
    ("finish", "error"),
    [
        (pb.Finish(reason=pb.FINISH_REASON_ABORT), Unavailable),
        (pb.Finish(reason=pb.FINISH_REASON_ERROR, error_message="broke"), EngineFailed),
    ],
)
async def test_an_input_without_a_result_fails_the_reply(finish: pb.Finish, error: type[Exception]) -> None:
    """All of it: a client has no use for a part."""
    reply = PooledReply([2] * 2, "float32")

    InputListener(0, reply).step([], finish)
    InputListener(1, reply).fail(WorkerLost("later"))

    with pytest.raises(error):
        await reply.wait()
    assert isinstance(reply.failure, error)


async def test_nothing_is_kept_of_what_comes_with_a_result() -> None:
    """A worker's megabytes beside each of them would stay until the last one comes."""
    reply = PooledReply([1], "float32")
    finish = end_with(pooled_message([2.0]))
    finish.error_message = "e" * 1000
    InputListener(0, reply).step([], finish)

    (result,) = await reply.wait()
    assert [type(each) for each in result] == [list, bytes, int]


@pytest.mark.parametrize(
    "finish",
    [
        None,
        pb.Finish(reason=pb.FINISH_REASON_LENGTH),
        end_with(pb.Pooled(shape=[2], data=bytes(4))),
        end_with(pb.Pooled(data=bytes(4))),
        end_with(pb.Pooled(shape=[1, 1, 1], data=bytes(4))),
        end_with(pb.Pooled(shape=[2**32 - 1] * 10**6, data=bytes(4))),
        end_with(pb.Pooled(shape=[0])),
        end_with(pb.Pooled(shape=[0, 0])),
        end_with(pb.Pooled(shape=[3], data=bytes(12))),
    ],
)
async def test_what_is_no_result_is_rejected(finish: pb.Finish | None) -> None:
    """Tokens, another end, numbers that do not fit their shape, or more than the model has."""
    with pytest.raises(ProtocolError):
        InputListener(0, PooledReply([2] * 1, "float32")).step([5] if finish is None else [], finish)
    with pytest.raises(ProtocolError):
        InputListener(0, PooledReply([2] * 1, "float32")).scored(pb.LogprobRows())


async def test_a_client_that_left_ends_the_wait() -> None:
    """With what there is."""
    reply = PooledReply([2] * 2, "float16")
    InputListener(0, reply).step([], end_with(pb.Pooled(shape=[2], data=bytes(4))))

    reply.give_up()

    assert len(await reply.wait()) == 1
    assert reply.failure is None
