"""CoreDriver with a fake engine core."""

import asyncio
from typing import Any

import pytest

from tests.lazily import Lazily
from tests.worker.vllm_engine.fake_core import FakeCore
from tests.worker.vllm_engine.older import skip_without_attribute
from tokenwire.errors import EngineFailed, Overloaded, Unavailable
from tokenwire.v1 import inference_pb2 as pb
from tokenwire.worker.engine.frame_buffer import FrameBuffer
from tokenwire.worker.engine.interface import EngineSequence, Step
from tokenwire.worker.vllm_engine.driver import VllmRequest
from tokenwire.worker.vllm_engine.weight_label import WeightLabel

core_driver = Lazily("tokenwire.worker.vllm_engine.core_driver")
grammars = Lazily("tokenwire.worker.vllm_engine.grammars")
sampling = Lazily("tokenwire.worker.vllm_engine.sampling")
engine_types = Lazily("vllm.v1.engine")
exceptions = Lazily("vllm.exceptions")

pytestmark = pytest.mark.engine


class FakeGeneratingCore(FakeCore):
    """The core of a model that generates."""

    def process_inputs(self, request_id: str, prompt: list[int], params: Any, tasks: Any, **inputs: Any) -> Any:
        return engine_types.EngineCoreRequest(request_id, prompt, None, params, None, 0.0, None, None, None)

    def emit(self, *outputs: tuple[str, list[int], Any], weight_version: str | None = None) -> None:
        """Send one message: (request, new tokens, finish reason) each."""
        made = [engine_types.EngineCoreOutput(name, ids, finish_reason=reason) for name, ids, reason in outputs]
        self.send(made, **({} if weight_version is None else {"weight_version": weight_version}))


class Driven:
    """A driver on a fake core."""

    def __init__(self) -> None:
        self.core = FakeGeneratingCore()
        self.core.max_num_queued_reqs = 4
        self.driver = core_driver.CoreDriver(self.core, grammars.GrammarCheck(None, None), WeightLabel())
        self.steps = self.driver.steps()

    async def submit(self, name: str = "r", n: int = 1, **params: Any) -> list[EngineSequence]:
        """Submit a request of n sequences."""
        sequences = [EngineSequence(FrameBuffer(), slot, name, slot) for slot in range(n)]
        vllms = sampling.to_vllm(pb.SamplingParams(**params), n)
        await self.driver.submit(VllmRequest(name, [1, 2, 3], vllms, {}, {"reasoning_ended": True}), sequences)
        return sequences

    async def step(self) -> Step:
        """Return the next step."""
        step: Step = await asyncio.wait_for(anext(self.steps), 10)
        return step


@pytest.fixture
async def driven() -> Any:
    """A driver that has started."""
    made = Driven()
    await made.driver.start()
    yield made
    await made.driver.stop()


async def test_a_message_of_the_core_is_one_step(driven: Driven) -> None:
    """With the tokens, first tokens and ends of its sequences, the load and the weights' label."""
    skip_without_attribute(engine_types.EngineCoreOutputs, "weight_version")
    (first,), (second,) = await driven.submit("a"), await driven.submit("b")
    driven.core.emit(("a-core", [5], None), ("b-core", [6], engine_types.FinishReason.LENGTH), weight_version="next")
    step = await driven.step()

    assert (step.sequences, step.token_ids) == ([first, second], [[5], [6]])
    assert [sequence for sequence, _ in step.prefills] == [first, second]
    assert step.finishes == [(second, pb.Finish(reason=pb.FINISH_REASON_LENGTH))]
    assert (step.load.running, step.weight_version) == (1, "next")
    driven.core.emit(("a-core", [7], None))
    assert (await driven.step()).prefills == []


async def test_sequences_of_a_request_have_ids_and_seeds_of_their_own(driven: Driven) -> None:
    """Those of vLLM's own children; the request's state of reasoning is set on each."""
    await driven.submit(n=2, seed=7, temperature=1.0)

    assert [child.request_id for child in driven.core.added] == ["0_r-core", "1_r-core"]
    assert [child.sampling_params.seed for child in driven.core.added] == [7, 8]
    assert [child.reasoning_ended for child in driven.core.added] == [True, True]


async def test_an_abort_ends_a_sequence_of_a_silent_core(driven: Driven) -> None:
    """At once and for good: what the core still sends of it is dropped, and the load is empty."""
    (sequence,) = await driven.submit()
    await driven.driver.abort([sequence, sequence])
    await driven.driver.abort([sequence])
    step = await driven.step()
    driven.core.emit(("r-core", [5], None))

    assert (step.finishes, step.load) == ([(sequence, pb.Finish(reason=pb.FINISH_REASON_ABORT))], pb.Load())
    assert driven.core.aborted == ["r-core"]
    assert (await driven.step()).sequences == []


async def test_a_request_that_is_taken_in_part_is_cancelled(driven: Driven) -> None:
    """None of its sequences runs, and its place in the queue is free again."""
    driven.core.accepts = 1
    with pytest.raises(Exception, match="no more"):
        await driven.submit(n=3, seed=1, temperature=1.0)

    assert sorted(driven.core.aborted) == ["0_r-core", "1_r-core"]
    driven.core.accepts = 10
    assert len(await driven.submit(n=4, seed=1, temperature=1.0)) == 4


async def test_vllms_limits_of_the_queue_apply(driven: Driven) -> None:
    """To sequences, and to tokens of prompts that are not computed yet."""
    skip_without_attribute(exceptions, "QueueOverflowError")
    await driven.submit(n=4, seed=1, temperature=1.0)
    with pytest.raises(Overloaded):
        await driven.submit("another")

    driven.core.max_num_queued_reqs, driven.core.max_num_queued_tokens = None, 12
    with pytest.raises(Overloaded):
        await driven.submit("another")
    driven.core.emit(("0_r-core", [5], None))
    await driven.step()
    await driven.submit("another")


async def test_a_dead_core_hands_its_sequences_back(driven: Driven) -> None:
    """They end with an error and may continue elsewhere; then the steps fail, and so does a new request."""
    (sequence,) = await driven.submit()
    driven.core.die()
    ((ended, finish),) = (await driven.step()).finishes

    assert ended is sequence
    assert (finish.error_message, finish.handed_back) == ("The engine died; see its log.", True)
    with pytest.raises(EngineFailed, match="died"):
        await driven.step()
    with pytest.raises(Unavailable):
        await driven.submit("later")


async def test_missing_internals_of_vllm_are_detected() -> None:
    """The names of internals that the core driver needs and an AsyncLLM lacks are returned."""

    class OtherCore:
        async def add_request_async(self, request: object) -> None:
            """Accept a request."""

    class OtherLLM:
        output_handler = None
        engine_core = OtherCore()

    missing = core_driver.missing_internals(OtherLLM())
    assert "AsyncLLM.engine_core.get_output_async" in missing
    assert "AsyncLLM.input_processor.process_inputs" in missing
    assert "AsyncLLM.engine_core.add_request_async" not in missing
