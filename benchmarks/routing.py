"""Cache hits and time to first token by policy: the real router before simulated engines, in virtual time.

The engines' own scheduler and KV cache step by the clock of the simulation, so results are the same on every machine.
"""

import heapq
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any

from benchmarks.load import percentile
from tokenwire.coordinator.fleet.request_handle import NEW
from tokenwire.coordinator.fleet.routing import Candidate, Policy, Router
from tokenwire.coordinator.fleet.slots import DiscardListener, SlotTable
from tokenwire.coordinator.fleet.submission import Submission
from tokenwire.coordinator.fleet.workload import Workload
from tokenwire.v1 import inference_pb2 as pb
from tokenwire.worker.engine.frame_buffer import FrameBuffer
from tokenwire.worker.engine.interface import EngineSequence, Step
from tokenwire.worker.simulated_engine.cache import KvCache
from tokenwire.worker.simulated_engine.model import SimulatedModel, load_model
from tokenwire.worker.simulated_engine.requests import RequestPlanner
from tokenwire.worker.simulated_engine.scheduler import Scheduler
from tokenwire.worker.simulated_engine.settings import BLOCK_SIZE, SimulationSettings

POLICIES: tuple[Policy, ...] = ("round-robin", "load", "affinity")
_WORKERS = 8
_SECONDS = 40.0
_SETTINGS = SimulationSettings(step_ms=10, prefill_tokens_per_s=20_000, max_num_seqs=64, kv_tokens=65_536)
_STEP_S = _SETTINGS.step_ms / 1000


@dataclass(slots=True, eq=False)
class SimulatedRequest:
    """A request and its result."""

    at: float
    prompt: list[int]
    max_tokens: int
    conversation: str = ""
    on_end: "Callable[[SimulatedRequest, float], None]" = lambda request, now: None
    reply: list[int] = field(default_factory=list)
    cached: int = 0
    first_token_s: float = 0.0


class Engine:
    """One simulated worker in virtual time, and the slots of each coordinator there."""

    def __init__(self, name: str, model: SimulatedModel, clock: Callable[[], float], coordinators: int) -> None:
        capacity = (_SETTINGS.kv_tokens or 0) // BLOCK_SIZE
        prefill = _SETTINGS.prefill_per_step
        self.name = name
        self._planner = RequestPlanner(_SETTINGS, model)
        self._scheduler = Scheduler(KvCache(capacity), _SETTINGS.max_num_seqs, prefill, model.words)
        self._requests: dict[EngineSequence, tuple[Session, SimulatedRequest]] = {}
        self.sessions = [Session(self, clock) for _ in range(coordinators)]

    def submit(self, session: "Session", submit: pb.Submit, request: SimulatedRequest) -> None:
        """Queue a request."""
        sequence = EngineSequence(FrameBuffer(), submit.slots[0], "", 0)
        self._requests[sequence] = session, request
        self._scheduler.add(self._planner.plan(submit, [sequence], None))

    def step(self, now: float) -> None:
        """Compute a step that ends now, and dispatch its tokens to coordinators."""
        if self._scheduler.active_sequences:
            step = self._scheduler.step()
            frames = {session: pb.StepFrame(load=step.load) for session in self.sessions}
            self._dispatch(step, frames, now)

    def _dispatch(self, step: Step, frames: "dict[Session, pb.StepFrame]", now: float) -> None:
        for sequence, token_ids in zip(step.sequences, step.token_ids, strict=True):
            self._requests[sequence][1].reply += token_ids
        for sequence, info in step.prefills:
            session, request = self._requests[sequence]
            request.cached, request.first_token_s = info.cached_tokens, now - request.at
            frames[session].prefills.add(slot=sequence.slot)
        for sequence, _ in step.finishes:
            frames[self._requests[sequence][0]].finishes.add(slot=sequence.slot)
        for session, frame in frames.items():
            session.workload.on_frame(frame)
        for sequence, _ in step.finishes:
            session, request = self._requests.pop(sequence)
            session.slots.release(sequence.slot)
            request.on_end(request, now)


class Session(Candidate):
    """A coordinator's view of an engine."""

    def __init__(self, engine: Engine, clock: Callable[[], float]) -> None:
        self.engine = engine
        self.slots = SlotTable()
        self._workload = Workload(self.slots, clock)
        self._workload.begin(_SETTINGS.max_num_seqs, pb.Load())

    @property
    def address(self) -> str:
        """The engine's name."""
        return self.engine.name

    @property
    def instance_id(self) -> str:
        """The engine's name."""
        return self.engine.name

    @property
    def workload(self) -> Workload:
        """The engine's workload."""
        return self._workload


class Simulation:
    """Coordinators in front of engines, and future requests."""

    def __init__(self, policy: Policy, model: SimulatedModel, coordinators: int) -> None:
        self.now = 0.0
        self.requests: list[SimulatedRequest] = []
        self._order = count()
        self._coming: list[tuple[float, int, SimulatedRequest]] = []
        self._engines = [Engine(f"worker-{n}", model, lambda: self.now, coordinators) for n in range(_WORKERS)]
        self._routers = [Router(policy) for _ in range(coordinators)]
        for number, router in enumerate(self._routers):
            for engine in self._engines:
                router.on_worker_state(engine.sessions[number], "")

    def schedule(self, request: SimulatedRequest) -> None:
        """Schedule a request."""
        heapq.heappush(self._coming, (request.at, next(self._order), request))

    def run(self) -> None:
        """Run until every request has ended."""
        unfinished = True
        while unfinished or self._coming:
            self.now += _STEP_S
            while self._coming and self._coming[0][0] <= self.now:
                self._submit(heapq.heappop(self._coming)[2])
            for engine in self._engines:
                engine.step(self.now)
            unfinished = any(session.slots.open for engine in self._engines for session in engine.sessions)

    def _submit(self, request: SimulatedRequest) -> None:
        number = len(self.requests) % len(self._routers)
        self.requests.append(request)
        params = pb.SamplingParams(max_tokens=request.max_tokens, ignore_eos=True, temperature=0)
        submission = Submission(
            prompt_token_ids=request.prompt, sampling_params=params, session_id=request.conversation or None
        )
        decision = self._routers[number].choose([engine.sessions[number] for engine in self._engines], submission, NEW)
        session = decision.worker
        slots = [session.slots.take(DiscardListener())]
        session.workload.on_submit(slots, decision.new)
        session.engine.submit(session, submission.message(slots).submit, request)


# Loads. Each gets a simulation and a source of chance.


def shared_prefixes(simulation: Simulation, chance: random.Random) -> None:
    """32 system prompts of 4,000 tokens of different popularity, each with a short question."""
    prefixes = [_text(chance, 4000) for _ in range(32)]
    for at in _arrivals(chance, 32.0):
        prefix = prefixes[min(int(chance.expovariate(0.12)), 31)]
        simulation.schedule(SimulatedRequest(at, prefix + _text(chance, 100), 50))


def conversations(simulation: Simulation, chance: random.Random, name_conversations: bool = False) -> None:
    """Conversations of 6 turns: each continues after a pause, with its whole history."""

    def next_turn(turns: int, request: SimulatedRequest, now: float) -> None:
        if turns:
            prompt = request.prompt + request.reply + _text(chance, 200)
            at = now + chance.uniform(1, 4)
            simulation.schedule(SimulatedRequest(at, prompt, 100, request.conversation, partial(next_turn, turns - 1)))

    for number, at in enumerate(_arrivals(chance, 12.0)):
        conversation = f"conversation {number}" if name_conversations else ""
        simulation.schedule(SimulatedRequest(at, _text(chance, 1000), 100, conversation, partial(next_turn, 5)))


def uniform(simulation: Simulation, chance: random.Random) -> None:
    """Prompts of 100 to 2,000 tokens without common prefixes."""
    for at in _arrivals(chance, 90.0):
        simulation.schedule(SimulatedRequest(at, _text(chance, chance.randrange(100, 2000)), 50))


def long_and_short(simulation: Simulation, chance: random.Random) -> None:
    """One prompt in ten has 8,000 tokens, the others 100."""
    for at in _arrivals(chance, 70.0):
        simulation.schedule(SimulatedRequest(at, _text(chance, 8000 if chance.random() < 0.1 else 100), 50))


def decoding(simulation: Simulation, chance: random.Random) -> None:
    """Short prompts and long replies, which fill the batches."""
    for at in _arrivals(chance, 52.0):
        simulation.schedule(SimulatedRequest(at, _text(chance, 100), chance.randrange(200, 2000)))


def bursts(simulation: Simulation, chance: random.Random) -> None:
    """80 prompts at once every two seconds, without common prefixes."""
    for second in range(0, int(_SECONDS), 2):
        for _ in range(80):
            simulation.schedule(SimulatedRequest(float(second), _text(chance, chance.randrange(100, 2000)), 50))


def bursts_of_one_prefix(simulation: Simulation, chance: random.Random) -> None:
    """80 prompts at once every two seconds with a common, new prefix of 2,000 tokens."""
    for second in range(0, int(_SECONDS), 2):
        prefix = _text(chance, 2000)
        for _ in range(80):
            simulation.schedule(SimulatedRequest(float(second), prefix + _text(chance, 100), 50))


_LOADS: dict[str, tuple[Callable[[Simulation, random.Random], None], int]] = {
    "shared prefixes": (shared_prefixes, 1),
    "shared prefixes, 2 coordinators": (shared_prefixes, 2),
    "conversations": (conversations, 1),
    "conversations with ids": (partial(conversations, name_conversations=True), 1),
    "uniform": (uniform, 1),
    "uniform, 2 coordinators": (uniform, 2),
    "long and short": (long_and_short, 1),
    "long replies": (decoding, 1),
    "bursts": (bursts, 1),
    "bursts of one prefix": (bursts_of_one_prefix, 1),
}


def _text(chance: random.Random, tokens: int) -> list[int]:
    return chance.choices(range(256), k=tokens)


def _arrivals(chance: random.Random, per_second: float) -> Iterator[float]:
    at = chance.expovariate(per_second)
    while at < _SECONDS:
        yield at
        at += chance.expovariate(per_second)


def run(seeds: int = 1) -> Iterator[dict[str, Any]]:
    """Run every load with every policy."""
    model = load_model(None, None)
    for name, (load, coordinators) in _LOADS.items():
        for policy in POLICIES:
            yield {"load": name, "policy": policy, **_measure(load, coordinators, policy, model, seeds)}


def _measure(
    load: Callable[[Simulation, random.Random], None],
    coordinators: int,
    policy: Policy,
    model: SimulatedModel,
    seeds: int,
) -> dict[str, float]:
    requests: list[SimulatedRequest] = []
    for seed in range(seeds):
        simulation = Simulation(policy, model, coordinators)
        load(simulation, random.Random(seed))
        simulation.run()
        requests += simulation.requests
    waits = [1000 * each.first_token_s for each in requests]
    return {
        "requests": len(requests),
        "cached": sum(each.cached for each in requests) / sum(len(each.prompt) for each in requests),
        "ttft_mean_ms": sum(waits) / len(waits),
        "ttft_p90_ms": percentile(waits, 90),
    }
