"""The simulated engine as simulated workers run it: intake takes time, and what they submit to it is recorded."""

import asyncio
import copy
import functools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tests.simulation.batch_noise import BatchNoiseSource
from tokenwire.protocol.packed_ids import prompt_ids
from tokenwire.protocol.seeds import has_seed
from tokenwire.v1 import inference_pb2 as pb
from tokenwire.worker.engine import cpu_time
from tokenwire.worker.engine.interface import EngineSequence, Step
from tokenwire.worker.simulated_engine import engine as engine_module
from tokenwire.worker.simulated_engine.engine import SimulatedEngine
from tokenwire.worker.simulated_engine.faults import Fault, FaultKind, FaultTrigger
from tokenwire.worker.simulated_engine.model import load_model
from tokenwire.worker.simulated_engine.requests import RequestPlanner
from tokenwire.worker.simulated_engine.scheduler import Scheduler
from tokenwire.worker.simulated_engine.settings import SimulationSettings
from tokenwire.worker.simulated_engine.simulated_sequence import SimulatedSequence
from tokenwire.worker.simulated_engine.tokens import Script, TokenSource

vars(engine_module)["load_model"] = functools.cache(load_model)  # the same for all workers of all runs
vars(cpu_time)["children_cpu_s"] = lambda: None  # a simulated engine has no processes; it reads the machine's /proc


@dataclass(frozen=True, slots=True)
class Placement:
    """One sequence of a request as submitted to an engine."""

    prompt: tuple[int, ...]
    source: TokenSource
    """Draws what the engine will draw; copied before it began."""
    seed: int
    """The sequence's own: vLLM adds its position to the request's."""
    seeded: bool
    """Whether it has one."""
    weights: str
    lora_id: int
    engine: "RecordedEngine"
    generated: list[str] = field(default_factory=list)
    """The version of the weights with which the engine generated each token so far."""

    @property
    def checkpoint(self) -> int:
        """The seed of its engine: the weights that the worker started with."""
        return self.engine.checkpoint

    @property
    def words(self) -> tuple[int, ...]:
        """What it draws from."""
        return self.source._rules.choice.words

    @property
    def has_state(self) -> bool:
        """Whether a sequence that begins with ids of another one does not go on as that one would."""
        return self.source._rules.generator


Placements = dict[str, list[Placement]]
"""The placements of all requests, by request id and in order."""


@dataclass(frozen=True, slots=True)
class _RecordingPlanner:
    """Plans as another planner does, and records the plans."""

    planner: RequestPlanner
    engine: "RecordedEngine"
    placements: Placements

    def plan(
        self,
        submit: pb.Submit,
        sequences: list[EngineSequence],
        fails_after: int | None,
        weights: str = "",
        scripts: Sequence[Script] = (),
    ) -> list[SimulatedSequence]:
        planned = self.planner.plan(submit, sequences, fails_after, weights, scripts)
        prompt = tuple(prompt_ids(submit))
        recorded = self.placements.setdefault(submit.request_id, [])
        for simulated in planned:
            params = submit.sampling_params
            seed, seeded = params.seed + simulated.sequence.index, has_seed(params)
            self.engine.add_noise(simulated)
            source = copy.copy(simulated.source)
            placement = Placement(prompt, source, seed, seeded, weights, submit.lora.id, self.engine)
            recorded.append(placement)
            self.engine.placed[simulated.sequence] = placement
        self.engine.check_weights()
        return planned


class RecordedEngine(SimulatedEngine):
    """Takes requests and aborts by way of another process, as vLLM does: each takes a while."""

    def __init__(
        self,
        settings: SimulationSettings,
        instance: str,
        intake_s: float,
        adapter_s: float,
        placements: Placements,
        on_weights: Callable[[str, str, str], None],
        batch_invariant: bool = True,
    ) -> None:
        """`on_weights` is called with each new request: the instance, and the version and weights it begins with."""
        super().__init__(settings)
        self._batch_invariant = batch_invariant
        self.placed: dict[EngineSequence, Placement] = {}
        self._on_weights = on_weights
        self.checkpoint = settings.seed
        self.instance = instance
        """The worker process."""
        self._intake_s = intake_s
        self._adapter_s = adapter_s
        """What it takes at most to read an adapter before a request starts."""
        self._placements = placements
        self._wanted: dict[EngineSequence, bool] = {}
        """Sequences on their way in, and whether they were not aborted meanwhile."""

    def capabilities(self) -> pb.EngineCapabilities:
        """Return those of any simulated engine, or of one whose tokens depend on the batch."""
        capabilities = super().capabilities()
        capabilities.batch_invariant = self._batch_invariant
        return capabilities

    def add_noise(self, simulated: SimulatedSequence) -> None:
        """Let the tokens of a new sequence depend on what else the engine has, unless it is batch-invariant."""
        if not self._batch_invariant:
            simulated.source = BatchNoiseSource(simulated.source, (self.instance, self.open_sequences))

    async def start(self) -> None:
        """Load the model, and record what is planned for it."""
        await super().start()
        assert self._planner is not None
        self._planner = _RecordingPlanner(self._planner, self, self._placements)  # type: ignore[assignment]

    async def submit(self, submit: pb.Submit, sequences: list[EngineSequence]) -> None:
        """Queue one request."""
        self._wanted.update(dict.fromkeys(sequences, True))
        await self._hand_over()
        if submit.lora.id:
            await asyncio.sleep(random.random() * self._adapter_s)
        try:
            await super().submit(submit, sequences)
        finally:
            early = [each for each in sequences if not self._wanted.pop(each)]
        await self._hand_over()
        if early:
            await super().abort(early)

    async def abort(self, sequences: list[EngineSequence]) -> None:
        """Abort sequences, those on their way in too."""
        for each in sequences:
            if each in self._wanted:
                self._wanted[each] = False
        await self._hand_over()
        await super().abort(sequences)

    @property
    def sequences(self) -> set[EngineSequence]:
        """Those that have not ended."""
        return set() if self._scheduler is None else set(self._scheduler._live)

    def check_weights(self) -> None:
        """Pass on what the weights are, and their version."""
        assert self._scheduler is not None
        self._on_weights(self.instance, self._scheduler.weight_version, self._weights)

    def _compute(self, scheduler: Scheduler) -> Step:
        step = super()._compute(scheduler)
        for sequence, token_ids in zip(step.sequences, step.token_ids, strict=True):
            self.placed[sequence].generated.extend([step.weight_version] * len(token_ids))
        return step

    def break_down(self, kind: FaultKind) -> None:
        """Inject a fault before the next step."""
        self._faults._pending.append(Fault(kind, FaultTrigger.STEP, 0, factor=20.0, steps=20))

    async def _hand_over(self) -> None:
        if self._intake_s:
            await asyncio.sleep(random.random() * self._intake_s)
