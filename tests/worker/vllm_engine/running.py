"""Runs requests on a real engine, records the output of each sequence and checks the invariants of steps."""

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tokenizers import Tokenizer

from tokenwire.v1 import inference_pb2 as pb
from tokenwire.worker.engine.frame_buffer import FrameBuffer
from tokenwire.worker.engine.interface import EngineSequence, Step

if TYPE_CHECKING:
    from tokenwire.worker.vllm_engine.engine import VllmEngine


@dataclass
class RecordedOutput:
    """The output of one sequence."""

    ids: list[int] = field(default_factory=list)
    logprobs: list[pb.LogprobRows] = field(default_factory=list)
    prefill: pb.PrefillInfo | None = None
    finish: pb.Finish | None = None
    weight_versions: set[str] = field(default_factory=set)
    moved: asyncio.Event = field(default_factory=asyncio.Event)
    """Set by every output."""


async def switch_driver(engine: "VllmEngine", use_core_driver: bool) -> None:
    """Restart the driver of a started engine, of either kind: starting an engine costs more than all tests."""
    await engine._started().stop()
    handler, engine.llm.output_handler = engine.llm.output_handler, None
    if handler is not None:
        handler.cancel()  # it would consume the next driver's output
    engine._use_core_driver = use_core_driver
    await engine._start_driver()


class Run:
    """Runs requests on an engine and checks the invariants of its steps."""

    def __init__(self, engine: "VllmEngine") -> None:
        self.engine = engine
        self.tokenizer: Tokenizer = Tokenizer.from_str(engine.tokenizer_files()["tokenizer.json"].decode())
        self.load = pb.Load()
        self._results: dict[EngineSequence, RecordedOutput] = {}
        self.consumer = asyncio.create_task(self._consume())

    async def _consume(self) -> None:
        async for step in self.engine.steps():
            self._take(step)

    def _take(self, step: Step) -> None:
        assert len(step.sequences) == len(step.token_ids)
        assert len(set(step.sequences)) == len(step.sequences)
        self.load = step.load
        for sequence, ids in zip(step.sequences, step.token_ids, strict=True):
            result = self._open(sequence)
            result.ids += ids
            result.weight_versions.add(step.weight_version)
        for sequence, prefill in step.prefills:
            assert self._open(sequence).prefill is None
            self._open(sequence).prefill = prefill
        for sequence, rows in step.logprobs:
            self._open(sequence).logprobs.append(rows)
        for sequence, finish in step.finishes:
            self._open(sequence).finish = finish
        for sequence in [*step.sequences, *(sequence for sequence, _ in step.finishes)]:
            self._results[sequence].moved.set()

    def _open(self, sequence: EngineSequence) -> RecordedOutput:
        result = self._results[sequence]
        assert result.finish is None, "output after the end of a sequence"
        return result

    def sequences(self, n: int, request_id: str = "request") -> list[EngineSequence]:
        """Create n sequences and record their output."""
        made = [EngineSequence(FrameBuffer(lambda _: None), index, request_id, index) for index in range(n)]
        self._results.update((sequence, RecordedOutput()) for sequence in made)
        return made

    def result(self, sequence: EngineSequence) -> RecordedOutput:
        """Return a sequence's output so far."""
        return self._results[sequence]

    async def start(self, prompt: str | list[int], n: int = 1, **params: Any) -> list[EngineSequence]:
        """Submit a request."""
        ids = self.chat(prompt) if isinstance(prompt, str) else prompt
        wire = pb.Submit(request_id="request", slots=range(n), prompt_token_ids=ids)
        wire.sampling_params.CopyFrom(pb.SamplingParams(**params))
        sequences = self.sequences(n)
        await self.engine.submit(wire, sequences)
        return sequences

    async def until(self, sequence: EngineSequence, tokens: int | None = None) -> RecordedOutput:
        """Wait until a sequence has this number of tokens, or has ended."""
        result = self._results[sequence]
        while result.finish is None and (tokens is None or len(result.ids) < tokens):
            result.moved.clear()
            await asyncio.wait_for(result.moved.wait(), 60)
        return result

    async def results(self, prompt: str | list[int], n: int = 1, **params: Any) -> list[RecordedOutput]:
        """Run a request to its end and return its results."""
        return [await self.until(sequence) for sequence in await self.start(prompt, n, **params)]

    def chat(self, text: str) -> list[int]:
        """Return the ids of a chat prompt without a system prompt."""
        return self.tokenizer.encode(f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n").ids

    def text(self, ids: list[int]) -> str:
        """Decode ids without special tokens."""
        return str(self.tokenizer.decode(ids))
