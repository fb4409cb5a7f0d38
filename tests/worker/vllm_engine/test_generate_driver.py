"""GenerateDriver with a fake engine that dies."""

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from tests.lazily import Lazily
from tokenwire.errors import EngineFailed, Unavailable
from tokenwire.v1 import inference_pb2 as pb
from tokenwire.worker.engine.frame_buffer import FrameBuffer
from tokenwire.worker.engine.interface import EngineSequence
from tokenwire.worker.vllm_engine.driver import VllmRequest
from tokenwire.worker.vllm_engine.weight_label import WeightLabel

generate = Lazily("tokenwire.worker.vllm_engine.generate_driver")
grammars = Lazily("tokenwire.worker.vllm_engine.grammars")
sampling = Lazily("tokenwire.worker.vllm_engine.sampling")

pytestmark = pytest.mark.engine


class _SilentLlm:
    """An AsyncLLM whose sequences have no output."""

    def __init__(self) -> None:
        self.errored = False
        self.vllm_config = SimpleNamespace(scheduler_config=SimpleNamespace(max_num_seqs=8))

    async def get_supported_tasks(self) -> tuple[str, ...]:
        return ("generate",)

    async def get_weight_version(self) -> str:
        return "default"

    async def generate(self, *arguments: Any, **more: Any) -> AsyncIterator[Any]:
        await asyncio.Event().wait()
        yield


async def test_a_dead_engine_fails_every_sequence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while idle: sequences end with an error and may continue on another worker, then the steps end."""
    monkeypatch.setattr("tokenwire.worker.vllm_engine.generate_driver._HEALTH_INTERVAL_S", 0.001)
    llm = _SilentLlm()
    driver = generate.GenerateDriver(llm, grammars.GrammarCheck(None, None), WeightLabel())
    await driver.start()
    sequence = EngineSequence(FrameBuffer(), slot=0, request_id="r", index=0)
    vllm_request = VllmRequest("r", None, sampling.to_vllm(pb.SamplingParams(), 1), {}, {})
    await driver.submit(vllm_request, [sequence])

    llm.errored = True
    steps = driver.steps()
    step = await anext(steps)

    ((ended, finish),) = step.finishes
    assert ended is sequence
    assert (finish.reason, finish.error_message) == (pb.FINISH_REASON_ERROR, "The engine died; see its log.")
    assert finish.handed_back
    with pytest.raises(EngineFailed, match="died"):
        await anext(steps)
    with pytest.raises(Unavailable):
        await driver.submit(vllm_request, [sequence])
    await driver.stop()
