"""Continuous batching without a model: which sequences run or wait, and which tokens a step returns.

Each running sequence holds its next tokens, up to the end of its KV block, as prebuilt lists; a step pops
one per sequence. All other work is per block of 16 tokens, or per request.
"""

import heapq
from collections.abc import Iterable
from itertools import count

from tokenwire.v1 import inference_pb2 as pb
from tokenwire.worker.engine.interface import EngineSequence, Step
from tokenwire.worker.simulated_engine.cache import KvCache
from tokenwire.worker.simulated_engine.settings import BLOCK_SIZE
from tokenwire.worker.simulated_engine.simulated_sequence import Phase, SimulatedSequence
from tokenwire.worker.simulated_engine.tokens import logprob_rows


class Scheduler:
    """The waiting queue, the running batch and their KV blocks."""

    def __init__(self, kv: KvCache, max_num_seqs: int, prefill_per_step: int | None, words: tuple[int, ...]) -> None:
        self._kv = kv
        self._max_num_seqs = max_num_seqs
        self._prefill_per_step = prefill_per_step
        self._words = words
        self._live: dict[EngineSequence, SimulatedSequence] = {}
        self._held: list[SimulatedSequence] = []
        self._waiting: list[tuple[int, int, SimulatedSequence]] = []
        self._prefilling: SimulatedSequence | None = None
        self._running: list[SimulatedSequence] = []
        self._due: list[SimulatedSequence] = []
        self._finished: list[tuple[EngineSequence, pb.Finish]] = []
        self._arrivals = count()
        self._has_ended = False
        self._batch_changed = False
        self._sequences: list[EngineSequence] = []
        self._chunks: list[list[list[int]]] = []
        self._scored: list[EngineSequence] = []
        self._scores: list[list[list[float]]] = []
        """Of those sequences of the batch, as `_chunks`."""
        self._has_rows = False
        self.holding = False
        """Whether new requests are held."""
        self.weight_version = "default"

    # Adding and ending.

    @property
    def open_sequences(self) -> int:
        """Number of sequences that have not ended."""
        return len(self._live)

    @property
    def active_sequences(self) -> int:
        """Number of sequences that have not ended and are not held."""
        return len(self._live) - len(self._held)

    @property
    def has_finishes(self) -> bool:
        """Whether the next step has finishes to report, even if nothing is computed."""
        return bool(self._finished)

    @property
    def free_capacity(self) -> int:
        """Sequences that could start at once; if negative, the number that already wait."""
        return self._max_num_seqs - len(self._live)

    def add(self, simulated_sequences: list[SimulatedSequence]) -> None:
        """Queue sequences."""
        for simulated in simulated_sequences:
            simulated.arrival = next(self._arrivals)
            self._live[simulated.sequence] = simulated
        if self.holding:
            self._held.extend(simulated_sequences)
        else:
            self._enqueue(simulated_sequences)

    def release_held(self) -> None:
        """Queue the held requests."""
        self.holding = False
        held, self._held = self._held, []
        self._enqueue(held)

    def end(self, sequences: Iterable[EngineSequence], finish: pb.Finish) -> None:
        """End sequences now; the next step reports them. Unknown ones are ignored."""
        for sequence in sequences:
            simulated = self._live.get(sequence)
            if simulated is not None:
                self._remove(simulated)
                self._finished.append((sequence, _copy(finish)))
        self._held = [simulated for simulated in self._held if simulated.phase is not Phase.DONE]

    def end_all(self, finish: pb.Finish) -> None:
        """End every live sequence now; the next step reports them."""
        self.end(list(self._live), finish)

    def reset_cache(self, preempt_running: bool) -> bool:
        """Clear the prefix cache; return whether it is empty now."""
        self._drop_ended()
        if preempt_running:
            while (victim := self._victim()) is not None:
                self._preempt(victim)
        return self._kv.clear()

    # Stepping.

    def step(self) -> Step:
        """Compute one step."""
        step = self._new_step()
        self._drop_ended()
        self._grow()
        self._prefill(step)
        if self._batch_changed:
            self._rebuild_batch()
        step.sequences = self._sequences
        # The only work per token.
        step.token_ids = list(map(list.pop, self._chunks))
        if self._scored:
            step.scores = list(zip(self._scored, map(list.pop, self._scores), strict=True))
        if self._has_rows:
            self._add_rows(step)
        if not all(self._chunks):
            self._due = [simulated for simulated in self._running if not simulated.chunk]
            self._finish(step)
        step.load = self.load()
        return step

    def idle_step(self) -> Step:
        """Report finishes and the load without computing anything."""
        step = self._new_step()
        step.load = self.load()
        return step

    def load(self) -> pb.Load:
        """Return the engine's load."""
        self._drop_ended()
        running = len(self._running) + (self._prefilling is not None)
        return pb.Load(running=running, waiting=len(self._live) - running, kv_cache_usage=self._kv.usage)

    def _new_step(self) -> Step:
        finished, self._finished = self._finished, []
        return Step(finishes=finished, weight_version=self.weight_version)

    def _grow(self) -> None:
        """Draw the next tokens of every sequence that has none left, and allocate a block for them."""
        due, self._due = self._due, []
        for simulated in due:
            if simulated.phase is Phase.RUNNING and (simulated.block_space or self._extend(simulated)):
                simulated.draw()

    def _extend(self, simulated: SimulatedSequence) -> bool:
        """Allocate a block, preempting the newest sequences if needed; return False if that is this one."""
        self._seal(simulated)
        while not self._kv.allocate():
            victim = self._victim()
            if victim is None:
                raise AssertionError("a running sequence is always a possible victim")
            self._preempt(victim)
            if victim is simulated:
                return False
        simulated.private = 1
        simulated.block_space = BLOCK_SIZE
        return True

    def _seal(self, simulated: SimulatedSequence) -> None:
        """Share the current block if it is full."""
        full = simulated.length // BLOCK_SIZE
        if full > len(simulated.hashes):
            simulated.hashes.append(simulated.source.context ^ simulated.scope)
        if full > simulated.sealed:
            self._kv.seal(simulated.hashes[simulated.sealed], simulated.prefix_hash_of(simulated.sealed))
            simulated.sealed += 1
            simulated.private -= 1

    def _victim(self) -> SimulatedSequence | None:
        return self._prefilling or (self._running[-1] if self._running else None)

    def _preempt(self, simulated: SimulatedSequence) -> None:
        if simulated.phase is Phase.RUNNING:
            self._seal(simulated)
            self._running.remove(simulated)
            self._batch_changed = True
        self._release(simulated)
        self._enqueue([simulated])

    def _enqueue(self, simulated_sequences: list[SimulatedSequence]) -> None:
        for simulated in simulated_sequences:
            simulated.phase = Phase.WAITING
            heapq.heappush(self._waiting, (simulated.priority, simulated.arrival, simulated))

    def _prefill(self, step: Step) -> None:
        """Compute prompts in queue order, up to the token budget of a step."""
        budget = self._prefill_per_step
        while simulated := self._prefilling or self._admit():
            used = simulated.missing if budget is None else min(budget, simulated.missing)
            simulated.missing -= used
            if simulated.missing:
                self._prefilling = simulated
                return
            self._prefilling = None
            self._run(simulated, step)
            if budget is not None:
                budget -= used
                if budget == 0:
                    return

    def _admit(self) -> SimulatedSequence | None:
        """Take the first waiting sequence if the batch and the KV cache have capacity for it."""
        waiting = self._waiting
        while waiting and waiting[0][2].phase is not Phase.WAITING:
            heapq.heappop(waiting)
        if not waiting or len(self._running) >= self._max_num_seqs:
            return None
        simulated = waiting[0][2]
        # The last token is always computed: the next one depends on it.
        readable = (simulated.length - 1) // BLOCK_SIZE if simulated.reads_cache else 0
        cached = self._kv.match(simulated.hashes[:readable])
        private = simulated.length // BLOCK_SIZE + 1 - cached
        if not self._kv.admit(simulated.hashes[:cached], private):
            return None
        heapq.heappop(waiting)
        simulated.phase = Phase.PREFILL
        simulated.sealed, simulated.private = cached, private
        simulated.missing = simulated.length - cached * BLOCK_SIZE
        return simulated

    def _run(self, simulated: SimulatedSequence, step: Step) -> None:
        """Move a computed context into the batch; this step returns its first token."""
        if not simulated.started:
            simulated.started = True
            info = pb.PrefillInfo(
                cached_tokens=simulated.sealed * BLOCK_SIZE, prompt_logprobs=simulated.prompt_logprobs
            )
            step.prefills.append((simulated.sequence, info))
            simulated.prompt_logprobs = None
        for block in range(simulated.sealed, len(simulated.hashes)):
            self._kv.seal(simulated.hashes[block], simulated.prefix_hash_of(block))
        simulated.private = 1
        simulated.sealed = len(simulated.hashes)
        simulated.phase = Phase.RUNNING
        simulated.block_space = (
            BLOCK_SIZE - simulated.drawn % BLOCK_SIZE if not simulated.chunk else simulated.block_space
        )
        self._running.append(simulated)
        self._batch_changed = True
        if not simulated.chunk:
            simulated.draw()

    def _add_rows(self, step: Step) -> None:
        for simulated, ids in zip(self._running, step.token_ids, strict=True):
            if simulated.logprobs is not None:
                rows = logprob_rows(simulated.logprobs, self._words, [(simulated.row_context, ids[0])])
                step.logprobs.append((simulated.sequence, rows))

    def _finish(self, step: Step) -> None:
        for simulated in self._due:
            if simulated.source.finish is not None:
                step.finishes.append((simulated.sequence, simulated.source.finish))
                self._remove(simulated)

    def _remove(self, simulated: SimulatedSequence) -> None:
        """Remove a sequence and free its memory."""
        self._has_ended = True
        self._release(simulated)
        simulated.phase = Phase.DONE
        del self._live[simulated.sequence]

    def _release(self, simulated: SimulatedSequence) -> None:
        if simulated is self._prefilling:
            self._prefilling = None
        self._kv.release(simulated.hashes[: simulated.sealed], simulated.private)
        simulated.sealed = simulated.private = 0

    def _drop_ended(self) -> None:
        if self._has_ended:
            self._has_ended = False
            self._batch_changed = True
            self._running = [simulated for simulated in self._running if simulated.phase is Phase.RUNNING]

    def _rebuild_batch(self) -> None:
        """Create new lists: earlier steps still refer to the old ones."""
        self._batch_changed = False
        self._sequences = [simulated.sequence for simulated in self._running]
        self._chunks = [simulated.chunk for simulated in self._running]
        self._scored = [simulated.sequence for simulated in self._running if simulated.scores is not None]
        self._scores = [simulated.scores for simulated in self._running if simulated.scores is not None]
        self._has_rows = any(simulated.logprobs is not None for simulated in self._running)


def _copy(finish: pb.Finish) -> pb.Finish:
    # Each sequence's finish gets its own slot.
    copied = pb.Finish()
    copied.CopyFrom(finish)
    return copied
