"""One vLLM engine that is driven in several ways, one after the other, in this process."""

import asyncio
import random

from vllm import SamplingParams
from vllm.inputs import tokens_input
from vllm.sampling_params import RequestOutputKind

from tokenwire.v1 import inference_pb2 as pb
from tokenwire.worker.engine.frame_buffer import FrameBuffer
from tokenwire.worker.engine.interface import EngineSequence
from tokenwire.worker.vllm_engine.engine import VllmEngine
from tokenwire.worker.vllm_engine.sampling import to_vllm

_PROMPT_TOKENS = 32


class DrivenEngine(VllmEngine):
    """The worker's engine, whose driver can be changed, and vLLM's own ways beside it."""

    _requests = 0

    async def drop(self, streams: int, tokens: int) -> None:
        """Decode the core's messages and drop them."""
        await self._leave_driver()
        tasks = await self.llm.get_supported_tasks()
        processor, core = self.llm.input_processor, self.llm.engine_core
        for _ in range(streams):
            params = to_vllm(self._sampling(tokens), 1)
            request = processor.process_inputs(self._next_id(), tokens_input(_prompt()), params, tasks)
            processor.assign_request_id(request)
            await core.add_request_async(request)
        finished = 0
        while finished < streams:
            outputs = await core.get_output_async()
            finished += sum(output.finish_reason is not None for output in outputs.outputs)

    async def drive_core(self, streams: int, tokens: int) -> None:
        """Do what the worker does with its usual driver."""
        await self._drive(True, streams, tokens)

    async def drive_generate(self, streams: int, tokens: int) -> None:
        """Do what the worker does with its other driver."""
        await self._drive(False, streams, tokens)

    async def generate(self, streams: int, tokens: int) -> None:
        """Do what vLLM's server does, but for HTTP and JSON."""
        await self._leave_driver()
        await asyncio.gather(*(self._generate_one(tokens) for _ in range(streams)))

    async def _generate_one(self, tokens: int) -> None:
        params = SamplingParams(
            max_tokens=tokens, ignore_eos=True, temperature=1.0, output_kind=RequestOutputKind.DELTA
        )
        async for _ in self.llm.generate(tokens_input(_prompt()), params, self._next_id()):
            pass

    async def _drive(self, with_core: bool, streams: int, tokens: int) -> None:
        await self._leave_driver()
        self._use_core_driver = with_core
        self._driver = self._choose_driver()
        await self._driver.start()
        buffer = FrameBuffer()
        sending = asyncio.create_task(_serialize(buffer))
        for slot in range(streams):
            request_id = self._next_id()
            submit = pb.Submit(request_id=request_id, slots=[slot], prompt_token_ids=_prompt())
            submit.sampling_params.CopyFrom(self._sampling(tokens))
            await self.submit(submit, [EngineSequence(buffer, slot, request_id, 0)])
        finished = 0
        async for step in self.steps():
            for sequence, token_ids in zip(step.sequences, step.token_ids, strict=True):
                buffer.add_tokens(sequence.slot, token_ids)
            for sequence, finish in step.finishes:
                buffer.add_finish(sequence.slot, finish)
            buffer.flush(step.load, step.weight_version)
            finished += len(step.finishes)
            if finished == streams:
                break
        sending.cancel()

    async def _leave_driver(self) -> None:
        """Stop reading the core's messages: the next one to read them starts anew."""
        if self._driver is not None:
            await self._driver.stop()
            self._driver = None
        handler, self.llm.output_handler = self.llm.output_handler, None
        if handler is not None:
            handler.cancel()

    def _sampling(self, tokens: int) -> pb.SamplingParams:
        return pb.SamplingParams(max_tokens=tokens, ignore_eos=True, temperature=1.0)

    def _next_id(self) -> str:
        self._requests += 1
        return f"driven-{self._requests}"


async def _serialize(buffer: FrameBuffer) -> None:
    while True:
        for event in await buffer.take():
            event.SerializeToString()


def _prompt() -> list[int]:
    return [random.randrange(100, 20_000) for _ in range(_PROMPT_TOKENS)]
