"""PoolingDriver with a fake engine core."""

import asyncio
from typing import Any

import pytest

from tests.lazily import Lazily
from tests.worker.vllm_engine.fake_core import FakeCore
from tokenwire.errors import InvalidRequest, Overloaded, Unavailable
from tokenwire.v1 import inference_pb2 as pb
from tokenwire.worker.engine.frame_buffer import FrameBuffer
from tokenwire.worker.engine.interface import EngineSequence, Step
from tokenwire.worker.vllm_engine.driver import VllmRequest
from tokenwire.worker.vllm_engine.weight_label import WeightLabel

torch = Lazily("torch")
pooling_driver = Lazily("tokenwire.worker.vllm_engine.pooling_driver")
grammars = Lazily("tokenwire.worker.vllm_engine.grammars")
engine_types = Lazily("vllm.v1.engine")
vllm = Lazily("vllm")

pytestmark = pytest.mark.engine


class FakePoolingCore(FakeCore):
    """The core of a pooling model."""

    def process_inputs(self, request_id: str, prompt: list[int], params: Any, tasks: Any, **inputs: Any) -> Any:
        if not prompt:
            raise ValueError("The decoder prompt cannot be empty")
        return engine_types.EngineCoreRequest(request_id, prompt, None, None, params, 0.0, None, None, None)

    def emit(self, **results: Any) -> None:
        """Send one message: a result, or the reason of a failure, by request."""
        made = [
            engine_types.EngineCoreOutput(
                f"{name.replace('_', '-')}-core",
                [],
                pooling_output=None if isinstance(given, engine_types.FinishReason) else torch.tensor(given),
                finish_reason=given if isinstance(given, engine_types.FinishReason) else engine_types.FinishReason.STOP,
            )
            for name, given in results.items()
        ]
        self.send(made)


class DrivenPooling:
    """A driver on a fake core."""

    def __init__(self) -> None:
        self.core = FakePoolingCore()
        check = grammars.GrammarCheck(None, None)
        self.driver = pooling_driver.PoolingDriver(self.core, check, WeightLabel())
        self.steps = self.driver.steps()

    async def pool(self, *prompts: list[int], dtype: str = "float32") -> list[EngineSequence]:
        """Start inputs with these ids."""
        sequences = [EngineSequence(FrameBuffer(), slot, "r", slot) for slot in range(len(prompts))]
        params = vllm.PoolingParams(task="embed")
        requests = [VllmRequest(f"r-{slot}", prompt, params, {}, {}) for slot, prompt in enumerate(prompts)]
        await self.driver.pool(requests, dtype, sequences)
        return sequences

    async def step(self) -> Step:
        """Return the next step."""
        step: Step = await asyncio.wait_for(anext(self.steps), 10)
        return step


@pytest.fixture
async def driven() -> Any:
    """A driver that has started."""
    made = DrivenPooling()
    await made.driver.start()
    yield made
    await made.driver.stop()


async def test_an_input_ends_with_its_result(driven: DrivenPooling) -> None:
    """Of the requested type, and with no token; a failure ends it without one."""
    first, second, third = await driven.pool([1, 2], [3], [4], dtype="float16")
    driven.core.emit(r_1=[1.0, 2.0], r_0=[0.5, 0.5])
    step = await driven.step()
    driven.core.emit(r_2=engine_types.FinishReason.ERROR)
    last = await driven.step()

    assert not any(step.token_ids)
    assert not step.prefills
    assert [sequence for sequence, _ in step.finishes] == [second, first]
    assert step.finishes[0][1].pooled == pb.Pooled(shape=[2], data=b"\0\x3c\0\x40")
    assert [(sequence, finish.reason) for sequence, finish in last.finishes] == [(third, pb.FINISH_REASON_ERROR)]
    assert last.load.running == 0


async def test_an_abort_ends_an_input(driven: DrivenPooling) -> None:
    """A result that comes too late is dropped."""
    (sequence,) = await driven.pool([1])

    await driven.driver.abort([sequence])
    driven.core.emit(r_0=[1.0])

    step = await driven.step()
    assert [finish.reason for _, finish in step.finishes] == [pb.FINISH_REASON_ABORT]
    assert (await driven.step()).finishes == []
    assert driven.core.aborted == ["r-0-core"]


async def test_inputs_start_together_or_not_at_all(driven: DrivenPooling) -> None:
    """An invalid one, or one that the core refuses, keeps none of the others."""
    with pytest.raises(InvalidRequest, match="cannot be empty"):
        await driven.pool([1], [])
    assert driven.core.added == []
    driven.core.accepts = 1
    with pytest.raises(InvalidRequest, match="no more"):
        await driven.pool([1], [2])
    assert driven.core.aborted == ["r-0-core", "r-1-core"]
    driven.core.accepts = 10
    await driven.pool([1], [2])
    driven.core.emit(r_0=[1.0], r_1=[1.0])
    assert len((await driven.step()).finishes) == 2


async def test_a_full_queue_refuses_inputs(driven: DrivenPooling) -> None:
    """By their number or their tokens, until some have ended."""
    driven.core.max_num_queued_tokens = 3
    await driven.pool([1, 2, 3])
    with pytest.raises(Overloaded):
        await driven.pool([4])
    driven.core.emit(r_0=[1.0])
    await driven.step()
    await driven.pool([4])


async def test_a_pooling_engine_generates_nothing(driven: DrivenPooling) -> None:
    """In vLLM's words; a dead one does nothing at all."""
    with pytest.raises(InvalidRequest, match="This model does not support generation"):
        await driven.driver.submit(VllmRequest("r", [1], None, {}, {}), [])
    driven.core.errored = True
    with pytest.raises(Unavailable):
        await driven.pool([1])


async def test_the_death_of_the_engine_hands_inputs_back(driven: DrivenPooling) -> None:
    """So that they are computed elsewhere."""
    await driven.pool([1])

    driven.core.die()

    ((_, finish),) = (await driven.step()).finishes
    assert finish.handed_back
