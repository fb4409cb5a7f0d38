"""Continuous batching without a model: which sequences run or wait, and which tokens a step returns.

Each running sequence holds its next tokens, up to the end of its KV block, as prebuilt lists; a step pops
one per sequence. All other work is per block of 16 tokens, or per request.
"""

import heapq
from collections.abc import Iterable
from itertools import count

from tokenwire.v1 import inference_pb2 as pb
from tokenwire.worker.engine.interface import Sequence, Step
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
        self._live: dict[Sequence, SimulatedSequence] = {}
        self._held: list[SimulatedSequence] = []
        self._waiting: list[tuple[int, int, SimulatedSequence]] = []
        self._prefilling: SimulatedSequence | None = None
        self._running: list[SimulatedSequence] = []
        self._due: list[SimulatedSequence] = []
        self._finished: list[tuple[Sequence, pb.Finish]] = []
        self._arrivals = count()
        self._has_ended = False
        self._batch_changed = False
        self._sequences: list[Sequence] = []
        self._chunks: list[list[list[int]]] = []
        self._scored = False
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

    def add(self, generations: list[SimulatedSequence]) -> None:
        """Queue sequences."""
        for generation in generations:
            generation.arrival = next(self._arrivals)
            self._live[generation.sequence] = generation
        if self.holding:
            self._held.extend(generations)
        else:
            self._enqueue(generations)

    def release_held(self) -> None:
        """Queue the held requests."""
        self.holding = False
        held, self._held = self._held, []
        self._enqueue(held)

    def end(self, sequences: Iterable[Sequence], finish: pb.Finish) -> None:
        """End sequences now; the next step reports them. Unknown ones are ignored."""
        for sequence in sequences:
            generation = self._live.get(sequence)
            if generation is not None:
                self._remove(generation)
                self._finished.append((sequence, _copy(finish)))
        self._held = [generation for generation in self._held if generation.phase is not Phase.DONE]

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
            self._score(step)
        if not all(self._chunks):
            self._due = [generation for generation in self._running if not generation.chunk]
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
        for generation in due:
            if generation.phase is Phase.RUNNING and (generation.block_space or self._extend(generation)):
                generation.draw()

    def _extend(self, generation: SimulatedSequence) -> bool:
        """Allocate a block, preempting the newest sequences if needed; return False if that is this one."""
        self._seal(generation)
        while not self._kv.allocate():
            victim = self._victim()
            if victim is None:
                raise AssertionError("a running sequence is always a possible victim")
            self._preempt(victim)
            if victim is generation:
                return False
        generation.private = 1
        generation.block_space = BLOCK_SIZE
        return True

    def _seal(self, generation: SimulatedSequence) -> None:
        """Share the current block if it is full."""
        full = generation.length // BLOCK_SIZE
        if full > len(generation.hashes):
            generation.hashes.append(generation.source.context ^ generation.scope)
        if full > generation.sealed:
            self._kv.seal(generation.hashes[generation.sealed], generation.prefix_hash_of(generation.sealed))
            generation.sealed += 1
            generation.private -= 1

    def _victim(self) -> SimulatedSequence | None:
        return self._prefilling or (self._running[-1] if self._running else None)

    def _preempt(self, generation: SimulatedSequence) -> None:
        if generation.phase is Phase.RUNNING:
            self._seal(generation)
            self._running.remove(generation)
            self._batch_changed = True
        self._release(generation)
        self._enqueue([generation])

    def _enqueue(self, generations: list[SimulatedSequence]) -> None:
        for generation in generations:
            generation.phase = Phase.WAITING
            heapq.heappush(self._waiting, (generation.priority, generation.arrival, generation))

    def _prefill(self, step: Step) -> None:
        """Compute prompts in queue order, up to the token budget of a step."""
        budget = self._prefill_per_step
        while generation := self._prefilling or self._admit():
            used = generation.missing if budget is None else min(budget, generation.missing)
            generation.missing -= used
            if generation.missing:
                self._prefilling = generation
                return
            self._prefilling = None
            self._run(generation, step)
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
        generation = waiting[0][2]
        # The last token is always computed: the next one depends on it.
        readable = (generation.length - 1) // BLOCK_SIZE if generation.reads_cache else 0
        cached = self._kv.match(generation.hashes[:readable])
        private = generation.length // BLOCK_SIZE + 1 - cached
        if not self._kv.admit(generation.hashes[:cached], private):
            return None
        heapq.heappop(waiting)
        generation.phase = Phase.PREFILL
        generation.sealed, generation.private = cached, private
        generation.missing = generation.length - cached * BLOCK_SIZE
        return generation

    def _run(self, generation: SimulatedSequence, step: Step) -> None:
        """Move a computed context into the batch; this step returns its first token."""
        if not generation.started:
            generation.started = True
            info = pb.PrefillInfo(
                cached_tokens=generation.sealed * BLOCK_SIZE, prompt_logprobs=generation.prompt_logprobs
            )
            step.prefills.append((generation.sequence, info))
            generation.prompt_logprobs = None
        for block in range(generation.sealed, len(generation.hashes)):
            self._kv.seal(generation.hashes[block], generation.prefix_hash_of(block))
        generation.private = 1
        generation.sealed = len(generation.hashes)
        generation.phase = Phase.RUNNING
        generation.block_space = (
            BLOCK_SIZE - generation.drawn % BLOCK_SIZE if not generation.chunk else generation.block_space
        )
        self._running.append(generation)
        self._batch_changed = True
        if not generation.chunk:
            generation.draw()

    def _score(self, step: Step) -> None:
        for generation, ids in zip(self._running, step.token_ids, strict=True):
            if generation.logprobs is not None:
                rows = logprob_rows(generation.logprobs, self._words, [(generation.row_context, ids[0])])
                step.logprobs.append((generation.sequence, rows))

    def _finish(self, step: Step) -> None:
        for generation in self._due:
            if generation.source.finish is not None:
                step.finishes.append((generation.sequence, generation.source.finish))
                self._remove(generation)

    def _remove(self, generation: SimulatedSequence) -> None:
        """Remove a sequence and free its memory."""
        self._has_ended = True
        self._release(generation)
        generation.phase = Phase.DONE
        del self._live[generation.sequence]

    def _release(self, generation: SimulatedSequence) -> None:
        if generation is self._prefilling:
            self._prefilling = None
        self._kv.release(generation.hashes[: generation.sealed], generation.private)
        generation.sealed = generation.private = 0

    def _drop_ended(self) -> None:
        if self._has_ended:
            self._has_ended = False
            self._batch_changed = True
            self._running = [generation for generation in self._running if generation.phase is Phase.RUNNING]

    def _rebuild_batch(self) -> None:
        """Create new lists: earlier steps still refer to the old ones."""
        self._batch_changed = False
        self._sequences = [generation.sequence for generation in self._running]
        self._chunks = [generation.chunk for generation in self._running]
        self._scored = any(generation.logprobs is not None for generation in self._running)


def _copy(finish: pb.Finish) -> pb.Finish:
    # Each sequence's finish gets its own slot.
    copied = pb.Finish()
    copied.CopyFrom(finish)
    return copied
