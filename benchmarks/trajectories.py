"""What recording sessions takes of a coordinator and a worker: the same turns with and without it, at once."""

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any

from benchmarks.load import StreamResult, http_request, stream
from benchmarks.processes import Measured, measured, simulated_pair

_STREAMS = 256
_STEP_MS = 100.0
"""A sixth of what one core can do, for each of the cases, so that frames are rarely merged."""
_TURN_TOKENS = 250
_ROUNDS = 3
_WARM_UP = 1
"""Rounds that are not counted."""
_PLAIN, _SESSION, _RECORDED = "no session", "session", "recorded session"
_ENGINE_S, _ENGINE_ROUNDS = 3.0, 3


@dataclass(frozen=True, slots=True)
class RecordingRow:
    """What a token takes: CPU time of whole turns by their tokens, the median of all rounds."""

    case: str
    coordinator_us_per_token: float
    worker_us_per_token: float
    """Beyond what the engine by itself takes."""
    engine_us_per_token: float
    coordinator_to_session: float
    """In relation to that of a session that is not recorded, in the same round."""
    both_to_session: float
    """Coordinator and worker likewise."""
    events_per_token: float
    """Where it is less than one, frames were merged, and the round is of a machine that was busy."""


@dataclass(slots=True)
class _Case:
    name: str
    worker: Measured
    coordinator: Measured
    url: str
    engine_us: float
    conversations: list[list[dict[str, str]]] = field(default_factory=list)
    rounds: list[tuple[float, float, float]] = field(default_factory=list)
    """CPU time per token of coordinator and worker, and events per token."""

    async def round(self, number: int) -> None:
        """Run a turn of all sessions."""
        self.conversations = self.conversations or [[] for _ in range(_STREAMS)]
        for place, messages in enumerate(self.conversations):
            messages.append({"role": "user", "content": f"Tell me part {number} of story {place}."})
        before = self.coordinator.cpu_seconds(), self.worker.cpu_seconds()
        results = await asyncio.gather(*map(self._turn, range(_STREAMS)))
        used = self.coordinator.cpu_seconds() - before[0], self.worker.cpu_seconds() - before[1]
        tokens = sum(result.completion_tokens for result in results)
        if tokens != _STREAMS * _TURN_TOKENS:
            raise RuntimeError(f"{self.name}: {tokens} tokens instead of {_STREAMS * _TURN_TOKENS}")
        events = sum(result.events for result in results) / tokens
        for messages, result in zip(self.conversations, results, strict=True):
            messages.append({"role": "assistant", "content": _text_of(result)})
        if number >= _WARM_UP:
            self.rounds.append((1e6 * used[0] / tokens, 1e6 * used[1] / tokens - self.engine_us, events))

    async def _turn(self, place: int) -> StreamResult:
        body: dict[str, Any] = {
            "messages": self.conversations[place],
            "max_tokens": _TURN_TOKENS,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if self.name != _PLAIN:
            body["session_id"] = f"story-{place}"
        return await stream(self.url, http_request(self.url, "/v1/chat/completions", body), keep_body=True)

    def row(self, session: "_Case") -> RecordingRow:
        """Return its medians, in relation to those of sessions that are not recorded."""
        coordinator, worker, events = (median(values) for values in zip(*self.rounds, strict=True))
        pairs = [*zip(self.rounds, session.rounds, strict=True)]
        alone = median(own[0] / other[0] for own, other in pairs)
        both = median(sum(own[:2]) / sum(other[:2]) for own, other in pairs)
        return RecordingRow(self.name, coordinator, worker, self.engine_us, alone, both, events)


def run() -> Iterator[dict[str, Any]]:
    """Measure all cases."""
    options = ("--sim-step-ms", str(_STEP_MS), "--sim-prefill-rate", "0", "--sim-max-num-seqs", str(_STREAMS))
    engine_us = {scored: _engine_us(scored) for scored in (False, True)}
    with ExitStack() as stack:
        cases = []
        for name in (_PLAIN, _SESSION, _RECORDED):
            enabled = ("--enable-trajectories",) if name == _RECORDED else ()
            pair = stack.enter_context(simulated_pair(*options, coordinator_options=enabled))
            cases.append(_Case(name, *pair[:3], engine_us[name == _RECORDED]))
        asyncio.run(_run_rounds(cases))
        for case in cases:
            yield asdict(case.row(cases[1]))


async def _run_rounds(cases: Sequence[_Case]) -> None:
    for number in range(_WARM_UP + _ROUNDS):
        # At once, so that whatever else the machine does slows all of them.
        await asyncio.gather(*(case.round(number) for case in cases))


def _engine_us(scored: bool) -> float:
    arguments = [str(_STREAMS), str(_STEP_MS), str(_ENGINE_S), *(["scored"] if scored else [])]
    taken = []
    for _ in range(_ENGINE_ROUNDS):
        with measured(arguments, module="benchmarks.engine_alone") as engine:
            taken.append(float(engine.wait_for(r"ready: (\S+)")[1]))
    return median(taken)


def _text_of(result: StreamResult) -> str:
    """Return the text of a streamed chat."""
    lines = bytes(result.body or b"").split(b"\n")
    events: list[Mapping[str, Any]] = [json.loads(line[6:]) for line in lines if line.startswith(b"data: {")]
    return "".join(event["choices"][0]["delta"].get("content") or "" for event in events if event["choices"])
