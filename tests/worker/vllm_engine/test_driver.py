"""What vLLM's drivers share: a queue of steps, and terminal events from vLLM's."""

import asyncio
import json

import pytest

from tokenwire.errors import EngineFailed
from tokenwire.v1 import inference_pb2 as pb
from tokenwire.worker.engine.interface import Step
from tokenwire.worker.vllm_engine.driver import GRAMMAR_STUCK, INTERNAL_ERROR, StepQueue, finish

STOP, ERROR = pb.FINISH_REASON_STOP, pb.FINISH_REASON_ERROR


async def test_steps_that_are_left_come_before_the_end() -> None:
    """A closed queue still yields what was put, in order, and then raises its error."""
    queue, first, second = StepQueue(), Step(), Step()
    queue.put(first)
    queue.put(second)
    queue.close(EngineFailed("gone"))
    queue.close()
    steps = queue.drain()

    assert queue.newest is second
    assert [await anext(steps) is each for each in (first, second)] == [True, True]
    assert queue.newest is None
    with pytest.raises(EngineFailed, match="gone"):
        await anext(steps)


async def test_an_idle_consumer_wakes_up() -> None:
    """For the next step, and for the end."""
    queue, step = StepQueue(), Step()
    steps = queue.drain()
    waiting = asyncio.ensure_future(anext(steps))
    await asyncio.sleep(0)
    assert not waiting.done()

    queue.put(step)
    assert await waiting is step
    ending = asyncio.ensure_future(anext(steps))
    await asyncio.sleep(0)
    queue.close()
    with pytest.raises(StopAsyncIteration):
        await ending


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (finish("stop", 7, [5, 7]), pb.Finish(reason=STOP, stop_token_id=7)),
        (finish("stop", None, [5, 2]), pb.Finish(reason=STOP, eos_token_id=2)),
        (finish("stop", None, []), pb.Finish(reason=STOP)),
        (finish("length", None, [5]), pb.Finish(reason=pb.FINISH_REASON_LENGTH)),
        (finish("error", None, [5], has_grammar=True), pb.Finish(reason=ERROR, error_message=GRAMMAR_STUCK)),
        (finish("error", None, [], has_grammar=True), pb.Finish(reason=ERROR, error_message=INTERNAL_ERROR)),
        (finish("error", None, [5]), pb.Finish(reason=ERROR, error_message=INTERNAL_ERROR)),
    ],
)
def test_a_finish_states_what_ended_the_sequence(event: pb.Finish, expected: pb.Finish) -> None:
    """A stop id of the request, EOS, the limit, a grammar's dead end, or the engine."""
    assert event == expected


def test_parameters_of_a_kv_transfer_are_passed_on() -> None:
    """As JSON, whatever a connector puts in."""
    event = finish("length", None, [5], {"remote_block_ids": [1, 2], "peer": ValueError("x")})

    assert json.loads(event.kv_transfer_params_json) == {"remote_block_ids": [1, 2], "peer": "x"}
