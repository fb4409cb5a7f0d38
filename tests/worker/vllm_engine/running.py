"""Requests on a real engine: what was told about each sequence, with the invariants of steps in view."""

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tokenizers import Tokenizer

from tokenwire.v1 import inference_pb2 as pb
from tokenwire.worker.engine import Sequence, Step
from tokenwire.worker.frame_buffer import Outbox

if TYPE_CHECKING:
    from tokenwire.worker.vllm_engine.engine import VllmEngine


@dataclass
class Result:
    """All that was told about one sequence."""

    ids: list[int] = field(default_factory=list)
    logprobs: list[pb.LogprobRows] = field(default_factory=list)
    prefill: pb.PrefillInfo | None = None
    finish: pb.Finish | None = None
    weight_versions: set[str] = field(default_factory=set)
    moved: asyncio.Event = field(default_factory=asyncio.Event)
    """Set whenever something is told."""


async def take_over(engine: "VllmEngine", use_pump: bool) -> None:
    """Drive a started engine anew, one way or the other: a start costs more than all that is asked of it."""
    await engine._started().stop()
    handler, engine.llm.output_handler = engine.llm.output_handler, None
    if handler is not None:
        handler.cancel()  # it would take what the next one waits for
    engine._use_pump = use_pump
    await engine._drive()


class Run:
    """Runs requests on an engine and keeps the invariants of its steps in view."""

    def __init__(self, engine: "VllmEngine") -> None:
        self.engine = engine
        self.tokenizer: Tokenizer = Tokenizer.from_str(engine.tokenizer_files()["tokenizer.json"].decode())
        self.load = pb.Load()
        self._results: dict[Sequence, Result] = {}
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

    def _open(self, sequence: Sequence) -> Result:
        result = self._results[sequence]
        assert result.finish is None, "something was told about a sequence after its end"
        return result

    def sequences(self, n: int, request_id: str = "request") -> list[Sequence]:
        """Make n sequences and listen to them."""
        made = [Sequence(Outbox(lambda _: None), index, request_id, index) for index in range(n)]
        self._results.update((sequence, Result()) for sequence in made)
        return made

    def result(self, sequence: Sequence) -> Result:
        """Look at what a sequence has so far."""
        return self._results[sequence]

    async def start(self, prompt: str | list[int], n: int = 1, **params: Any) -> list[Sequence]:
        """Submit a request."""
        ids = self.chat(prompt) if isinstance(prompt, str) else prompt
        wire = pb.Submit(request_id="request", slots=range(n), prompt_token_ids=ids)
        wire.sampling_params.CopyFrom(pb.SamplingParams(**params))
        sequences = self.sequences(n)
        await self.engine.submit(wire, sequences)
        return sequences

    async def until(self, sequence: Sequence, tokens: int | None = None) -> Result:
        """Wait until a sequence has so many tokens, or its end."""
        result = self._results[sequence]
        while result.finish is None and (tokens is None or len(result.ids) < tokens):
            result.moved.clear()
            await asyncio.wait_for(result.moved.wait(), 60)
        return result

    async def whole(self, prompt: str | list[int], n: int = 1, **params: Any) -> list[Result]:
        """Submit a request and wait for all of its ends."""
        return [await self.until(sequence) for sequence in await self.start(prompt, n, **params)]

    def chat(self, text: str) -> list[int]:
        """Ids of a chat prompt for the embedded model."""
        return self.tokenizer.encode(f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n").ids

    def text(self, ids: list[int]) -> str:
        """Text of ids, without special tokens."""
        return str(self.tokenizer.decode(ids))
