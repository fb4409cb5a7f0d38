"""This coordinator's estimate of one worker's workload."""

import math

import pytest

from tests.coordinator.fleet.loaded_worker import LoadedWorker
from tokenwire.coordinator.fleet.workload import (
    MOST_PROMPT_TOKENS,
    MOST_SEQUENCES,
    QUEUED_TOKENS,
    SEQUENCE_TOKENS,
    PromptsAhead,
)
from tokenwire.v1 import inference_pb2 as pb


def test_work_ahead_is_prompts_and_sequences() -> None:
    """A prompt counts until it is computed, a sequence until it ends."""
    worker = LoadedWorker("one")
    worker.take(prompt=700)
    worker.take(sequences=2, prompt=300)
    assert worker.workload.ahead() == 1000 + 3 * SEQUENCE_TOKENS

    worker.workload.on_frame(pb.StepFrame(prefills=[pb.PrefillInfo(slot=0)], load=pb.Load(running=3)))
    assert worker.workload.ahead() == 300 + 3 * SEQUENCE_TOKENS
    worker.workload.on_frame(pb.StepFrame(finishes=[pb.Finish(slot=1)], load=pb.Load(running=2)))
    worker.slots.release(1)
    assert worker.workload.ahead() == 2 * SEQUENCE_TOKENS


def test_the_load_of_other_coordinators_counts_while_it_is_recent() -> None:
    """Their sequences are in the load report; an old report counts as no load."""
    worker = LoadedWorker("one")
    worker.take()
    worker.report(running=5, waiting=2)
    assert worker.workload.sequences == 7
    worker.take()
    assert worker.workload.sequences == 8

    worker.clock.now += 10
    assert worker.workload.sequences == 2


def test_more_inputs_than_replies_may_wait_for_a_worker() -> None:
    """Each takes a step or a few."""
    worker = LoadedWorker("one")
    worker.workload.begin(8, pb.Load())
    assert (worker.workload.capacity, worker.workload.usual_queue) == (8, 8)
    worker.workload.begin(8, pb.Load(), pools=True)
    assert (worker.workload.capacity, worker.workload.usual_queue) == (8, 8 * 64)


def test_a_full_worker_costs_more_than_its_prompts() -> None:
    """Without free sequences or memory, a request waits for a sequence to end."""
    full, out_of_memory = LoadedWorker("full"), LoadedWorker("memory")
    full.workload.begin(4, pb.Load())
    full.take(sequences=5)
    assert full.workload.ahead() == 5 * SEQUENCE_TOKENS + 2 * QUEUED_TOKENS

    out_of_memory.take(sequences=5)
    out_of_memory.report(running=2, waiting=3, kv_cache_usage=0.99)
    assert out_of_memory.workload.ahead() == 5 * SEQUENCE_TOKENS + 3 * QUEUED_TOKENS


@pytest.mark.parametrize(
    ("sent", "kept"), [(math.nan, 0.0), (math.inf, 1.0), (-math.inf, 0.0), (-1.0, 0.0), (1e38, 1.0), (0.5, 0.5)]
)
def test_a_share_of_memory_is_one_whatever_a_worker_says(sent: float, kept: float) -> None:
    """Other numbers made a status that browsers cannot parse."""
    worker = LoadedWorker("one")
    worker.report(running=3, waiting=2, kv_cache_usage=sent)
    assert worker.workload.load == pb.Load(running=3, waiting=2, kv_cache_usage=kept)

    worker.workload.begin(4, pb.Load(kv_cache_usage=sent))
    assert worker.workload.load == pb.Load(kv_cache_usage=kept)


def test_a_workload_is_reset_for_a_new_session() -> None:
    """Prompts in flight are removed."""
    worker = LoadedWorker("one")
    worker.take(prompt=700)
    worker.slots.release_all()
    worker.workload.begin(256, pb.Load())
    assert worker.workload.ahead() == 0


def test_a_worker_gets_a_few_more_sequences_than_it_runs() -> None:
    """So that one that ends is replaced in the next step; none more while it lacks memory."""
    worker = LoadedWorker("one")
    worker.workload.begin(4, pb.Load())
    assert worker.workload.free_capacity() == 6
    worker.take(sequences=4)
    worker.report(running=3, waiting=1, kv_cache_usage=0.95)
    assert worker.workload.free_capacity() == 1
    worker.take()
    assert worker.workload.free_capacity() == 0


def test_a_worker_is_not_believed_to_run_any_number() -> None:
    """The queue's length depends on it, and how much of the traffic it gets."""
    worker = LoadedWorker("one")
    worker.workload.begin(2**32 - 1, pb.Load())
    assert worker.workload.capacity == MOST_SEQUENCES
    assert worker.workload.free_capacity() == MOST_SEQUENCES * 17 // 16


def test_a_worker_that_was_lost_gets_a_few_to_probe_it() -> None:
    """Until it has generated a token; one that announces no maximum has no other limit."""
    worker = LoadedWorker("one")
    assert worker.workload.free_capacity(half_open=True) == 8
    worker.workload.begin(0, pb.Load())
    worker.take(sequences=100)
    assert worker.workload.free_capacity() == worker.workload.capacity


def test_a_tenant_sends_prompts_until_it_has_enough_there() -> None:
    """The last one may be long."""
    prompts = PromptsAhead()
    prompts.add([0], [MOST_PROMPT_TOKENS - 1], "one")
    assert prompts.has_room("one")
    prompts.add([1], [100_000], "one")

    assert not prompts.has_room("one")
    assert prompts.has_room("two")
    assert not prompts.has_room("one", places=256)
    assert prompts.has_room("one", places=2048)


def test_a_prompt_that_is_computed_or_ended_makes_room() -> None:
    """Once; nothing is kept of it."""
    prompts = PromptsAhead()
    prompts.add(range(3), [MOST_PROMPT_TOKENS, 1, 2], "one")
    prompts.add([3], [5])

    prompts.remove(0)
    prompts.remove(0)

    assert prompts.has_room("one")
    assert (prompts.total, prompts.tokens) == (8, {1: 1, 2: 2, 3: 5})
    for slot in (1, 2, 3):
        prompts.remove(slot)
    assert not any((prompts.total, prompts.tokens, prompts._tenants, prompts._of_tenant))


def test_a_lost_worker_has_none() -> None:
    """They are counted where they go next."""
    prompts = PromptsAhead()
    prompts.add([0], [MOST_PROMPT_TOKENS], "one")

    prompts.clear()

    assert prompts.has_room("one")
    assert prompts.total == 0
