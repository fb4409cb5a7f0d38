"""Runs requests on a simulated engine and collects their output."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from tokenwire.v1 import inference_pb2 as pb
from tokenwire.worker.engine.frame_buffer import FrameBuffer
from tokenwire.worker.engine.interface import EngineSequence, Step
from tokenwire.worker.simulated_engine.engine import SimulatedEngine, SimulationSettings
from tokenwire.worker.simulated_engine.faults import FaultPlan
from tokenwire.worker.simulated_engine.pacing import StepPacer

FAST = SimulationSettings(step_ms=0)
PROMPT = list(range(32, 72))
LONG = [65 + i % 26 for i in range(160)]
EOS = 258


@dataclass(slots=True)
class SimulatedOutput:
    """The output of one sequence."""

    ids: list[int] = field(default_factory=list)
    finish: pb.Finish = field(default_factory=pb.Finish)
    cached_tokens: int = 0
    logprobs: list[pb.LogprobRows] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    prompt_logprobs: pb.LogprobRows = field(default_factory=pb.LogprobRows)


class Harness:
    """One engine with its output so far."""

    def __init__(self, engine: SimulatedEngine) -> None:
        self.engine = engine
        self.steps = engine.steps()
        self.results: dict[EngineSequence, SimulatedOutput] = {}
        self._open: set[EngineSequence] = set()
        self._slots = 0
        self._frame_buffer = FrameBuffer()

    async def submit(self, prompt: list[int] | None = None, n: int = 1, **fields: object) -> list[EngineSequence]:
        """Submit a request; fields are sampling parameters, a whole submit under `submit`, or `sampled_only`."""
        submit = pb.Submit(prompt_token_ids=PROMPT if prompt is None else prompt)
        extra = fields.pop("submit", None)
        if isinstance(extra, pb.Submit):
            submit.MergeFrom(extra)
        sampled_only = bool(fields.pop("sampled_only", False))
        fields.setdefault("max_tokens", 20)
        given = {name: value for name, value in fields.items() if value is not None}
        submit.sampling_params.MergeFrom(pb.SamplingParams(**given))  # type: ignore[arg-type]
        sequences = [EngineSequence(self._frame_buffer, self._slots + i, "request", i, sampled_only) for i in range(n)]
        submit.slots.extend(sequence.slot for sequence in sequences)
        self._slots += n
        await self.engine.submit(submit, sequences)
        for sequence in sequences:
            self.results[sequence] = SimulatedOutput()
        self._open.update(sequences)
        return sequences

    async def step(self) -> Step:
        """Take one step."""
        step = await anext(self.steps)
        for sequence, ids in zip(step.sequences, step.token_ids, strict=True):
            assert sequence in self._open, "a token after the end"
            self.results[sequence].ids += ids
        for sequence, info in step.prefills:
            self.results[sequence].cached_tokens = info.cached_tokens
            self.results[sequence].prompt_logprobs = info.prompt_logprobs
        for sequence, rows in step.logprobs:
            self.results[sequence].logprobs.append(rows)
        for sequence, scores in step.scores:
            self.results[sequence].scores += scores
        for sequence, finish in step.finishes:
            self._open.remove(sequence)
            self.results[sequence].finish = finish
        return step

    async def finish(self) -> None:
        """Take steps until every sequence has ended."""
        while self._open:
            await self.step()

    async def run(self, prompt: list[int] | None = None, **fields: object) -> SimulatedOutput:
        """Run one request of one sequence to its end."""
        (sequence,) = await self.submit(prompt, 1, **fields)
        while sequence in self._open:
            await self.step()
        return self.results[sequence]


def faulty(*faults: str, **fields: float) -> SimulationSettings:
    """Return settings of a fast engine with these faults."""
    return SimulationSettings(**{"step_ms": 0, **fields}, faults=FaultPlan.parse(faults))  # type: ignore[arg-type]


@asynccontextmanager
async def simulation(settings: SimulationSettings = FAST, pacer: StepPacer | None = None) -> AsyncIterator[Harness]:
    """Start an engine, and stop it at the end."""
    engine = SimulatedEngine(settings, pacer)
    await engine.start()
    harness = Harness(engine)
    try:
        yield harness
    finally:
        await engine.stop()
        await harness.steps.aclose()  # type: ignore[attr-defined]
