"""`vllm serve` and tokenwire with the same engine arguments under `vllm bench serve`, and in long conversations.

One server after the other, each with the whole GPU, rather than both at once with half of it: an engine of 8B in bf16
on 80 GB has room for about 400 of these sequences alone, and for a quarter of them beside another one, so half the
load would wait for memory instead of for the servers. What alternating would show, a machine that slows down, is to be
seen in the first load: it runs again at the end. Which server is first can only matter to its own start: it compiles.

Sampled at temperature 1, since greedy streams of random weights soon repeat one token. The text of such replies is
tokenized differently than it was generated, more often than a real model's: `cached_share` of the conversations is
below what real ones would have where a server does not keep the generated ids, so compare it with care.
"""

import asyncio
import resource
import time
from dataclasses import dataclass
from typing import Any

from gpu.bench import BenchClients, BenchRun, bench_clients
from gpu.contenders import CONTENDERS, Contender
from gpu.gpu_samples import sampled, wait_memory_free
from gpu.kit import Kit
from gpu.parts import Parts
from gpu.step import Skipped
from gpu.streams import Conversations

NAME = "load"
LIMIT_S = 300

_RESERVE_S = 20
_FIRST_SHARE = 0.57
"""Of the time: the first server compiles, the second one finds it done."""
_LOADS = (
    BenchRun(64, 128, seed=1),
    BenchRun(256, 512, seed=2),
    BenchRun(1024, 1024, seed=3),
    BenchRun(64, 128, seed=4, chat=True),
    BenchRun(64, 128, seed=5),
)
_DRY_LOADS = (
    BenchRun(2, 4, 64, 16, seed=1),
    BenchRun(4, 6, 64, 16, chat=True, seed=2),
    BenchRun(2, 4, 64, 16, seed=3),
)
_UNTIMED = BenchRun(8, 16, output_tokens=32, seed=9)
_DRY_UNTIMED = BenchRun(1, 1, 64, 4, seed=9)
"""What a server does at its first requests is not counted: tokenwire's worker has done it at its start."""
_CONVERSATIONS = Conversations(count=32, turns=6, words=120, max_tokens=150)
_DRY_CONVERSATIONS = Conversations(count=2, turns=3, words=30, max_tokens=12)
_CLIENTS = 8
"""One parses about 15,000 events a second; and it should not be near that when it takes the time of each."""
_SECONDS_PER_PROMPT = 0.07


def run(kit: Kit) -> dict[str, Any]:
    """Load each server; loads for which there is no time are skipped."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # servers inherit it; each stream is an open file
    end = time.monotonic() + (LIMIT_S if kit.on_cuda else 5 * LIMIT_S) - _RESERVE_S
    parts = Parts(kit.out)
    for number, name in enumerate(CONTENDERS):
        deadline = end if number else time.monotonic() + _FIRST_SHARE * (end - time.monotonic())
        with parts.part(name) as found:
            wait_memory_free()
            with (
                bench_clients(_CLIENTS if kit.on_cuda else 1, kit.out, kit.python) as clients,
                CONTENDERS[name](kit, kit.large, kit.engine_arguments()) as contender,
            ):
                found |= {"model": kit.large.name, "ready_s": contender.ready_s}
                _Loader(kit, parts, contender, clients, deadline).run_all()
    return {"parts": parts.results}


@dataclass(slots=True)
class _Loader:
    """Sends all loads to one server."""

    kit: Kit
    parts: Parts
    contender: Contender
    clients: BenchClients
    deadline: float
    seconds_per_prompt: float = _SECONDS_PER_PROMPT

    def run_all(self) -> None:
        """Run each load as a part of the step."""
        on_cuda, server = self.kit.on_cuda, self.contender.name
        self._bench(_UNTIMED if on_cuda else _DRY_UNTIMED)
        *before, chat, again = _LOADS if on_cuda else _DRY_LOADS
        for load in before:
            self._part(load)
        with self.parts.part(f"{server}, conversations") as found:
            found |= self._converse(_CONVERSATIONS if on_cuda else _DRY_CONVERSATIONS)
        for load in (chat, again):
            self._part(load)

    def _part(self, load: BenchRun) -> None:
        """Run a load as a part of the step, which fails if a request does."""
        with self.parts.part(f"{self.contender.name}, {load.name}") as found:
            found |= self._timed(load)
            if found["failed"] or found["completed"] < load.prompts:
                raise RuntimeError(f"{found['completed']} of {load.prompts} requests were answered: {found['errors']}")

    def _timed(self, load: BenchRun) -> dict[str, Any]:
        left_s = self.deadline - time.monotonic()
        if load.prompts * self.seconds_per_prompt > left_s:
            raise Skipped(f"{left_s:.0f} s are left")
        started, before = time.monotonic(), self.contender.cpu_seconds()
        with sampled(self.kit.out / f"gpu-{self.contender.name}-{load.name}.csv") as gpu:
            row = self._bench(load)
        self.seconds_per_prompt = (time.monotonic() - started) / load.prompts
        return row | self.contender.cpu_since(before, row.get("output_tokens", 0)) | gpu

    def _bench(self, load: BenchRun) -> dict[str, Any]:
        model, left_s = self.contender.model, self.deadline - time.monotonic()
        label = f"bench-{self.contender.name}"
        return self.clients.run(load, self.contender.url, model.name, model.folder, label, max(30.0, left_s))

    def _converse(self, conversations: Conversations) -> dict[str, Any]:
        before = self.contender.cpu_seconds()
        turns = asyncio.run(conversations.hold(self.contender.url, self.contender.model.name))
        tokens = sum(turn.get("output_tokens", 0) for turn in turns)
        return {"streams": conversations.count, "turns": turns, **self.contender.cpu_since(before, tokens)}
