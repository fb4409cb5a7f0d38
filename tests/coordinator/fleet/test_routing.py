"""The choice of a worker, its cost, and its explanation."""

from dataclasses import dataclass, field

import pytest

from tests.clock import Clock
from tokenwire.coordinator.fleet.request_handle import NEW, Placement
from tokenwire.coordinator.fleet.routing import CONVERSATION_TOKENS, Router, TTLCache
from tokenwire.coordinator.fleet.slots import DiscardListener, SlotTable
from tokenwire.coordinator.fleet.workload import QUEUED_TOKENS, SEQUENCE_TOKENS, Workload
from tokenwire.v1 import inference_pb2 as pb


@dataclass
class Worker:
    """A worker whose load is set by a test."""

    address: str
    instance_id: str = ""
    clock: Clock = field(default_factory=Clock)
    slots: SlotTable = field(default_factory=SlotTable)

    def __post_init__(self) -> None:
        self.instance_id = self.instance_id or f"instance of {self.address}"
        self.workload = Workload(self.slots, self.clock)
        self.workload.begin(256, pb.Load())

    def take(self, sequences: int = 1, prompt: int = 0) -> None:
        """Submit a request."""
        slots = [self.slots.take(DiscardListener()) for _ in range(sequences)]
        self.workload.on_submit(slots, prompt)

    def report(self, **load: float) -> None:
        """Send a frame without tokens."""
        self.workload.on_frame(pb.StepFrame(load=pb.Load(**load)))  # type: ignore[arg-type]


def prompt(tokens: int = 1024, first: int = 0) -> list[int]:
    """Return ids that share no prefix with those of another first id."""
    return [first, *range(1, tokens)]


def request(token_ids: list[int], **fields: object) -> pb.Submit:
    """Return a request."""
    return pb.Submit(prompt_token_ids=token_ids, **fields)  # type: ignore[arg-type]


@pytest.fixture
def workers() -> list[Worker]:
    """Three idle workers."""
    return [Worker(name) for name in ("one", "two", "three")]


@pytest.fixture
def router(workers: list[Worker]) -> Router:
    """A router over the workers."""
    router = Router()
    for worker in workers:
        router.on_worker_state(worker, "weights")
    return router


def test_a_prompt_goes_to_the_worker_with_its_prefix(router: Router, workers: list[Worker]) -> None:
    """Others go to the workers chosen least recently; cached tokens are not counted as work."""
    first = router.choose(workers, request(prompt(first=1)), NEW)
    other = router.choose(workers, request(prompt(first=2)), NEW)
    again = router.choose(workers, request([*prompt(first=1), *range(500)]), NEW)

    assert other.worker is not first.worker
    assert again.worker is first.worker
    assert (again.cached, again.new) == (1024, 500)
    assert again.explain() == f'{first.worker.address}; cached=1024; ahead=0; why="holds a part of the prompt"'


def test_a_cached_prompt_still_costs_a_token(router: Router, workers: list[Worker]) -> None:
    """The engine always computes the last one."""
    router.choose(workers, request(prompt()), NEW)
    assert router.choose(workers, request(prompt()), NEW).new == 1


def test_affinity_ends_where_it_costs_more_than_it_saves(router: Router, workers: list[Worker]) -> None:
    """When the worker with the prefix has more work than the prefix saves, another one computes it again."""
    holder = router.choose(workers, request(prompt()), NEW).worker

    holder.take(prompt=900)
    assert router.choose(workers, request(prompt()), NEW).worker is holder
    holder.take(prompt=900)
    decision = router.choose(workers, request(prompt()), NEW)

    assert decision.worker is not holder
    assert (decision.cached, decision.ahead) == (0, 0)
    assert decision.explain().endswith('; cached=0; ahead=0; why="least work ahead"')


@pytest.mark.parametrize(
    "fields",
    [{"cache_salt": "mine"}, {"lora": pb.LoraAdapter(name="red", id=3)}, {"data_parallel_rank": 1}],
    ids=["salt", "adapter", "rank"],
)
def test_caches_that_are_not_shared_do_not_match(
    router: Router, workers: list[Worker], fields: dict[str, object]
) -> None:
    """The same ids with another salt, adapter or rank are another prompt."""
    router.choose(workers, request(prompt()), NEW)

    assert router.choose(workers, request(prompt(), **fields), NEW).cached == 0
    assert router.choose(workers, request(prompt(), **fields), NEW).cached == 1023
    assert router.choose(workers, request(prompt()), NEW).cached == 1023


def test_a_request_that_skips_the_cache_saves_nothing(router: Router, workers: list[Worker]) -> None:
    """But its own prompt is in the cache for the next one."""
    unread = pb.SamplingParams(prompt_logprobs=1)

    holder = router.choose(workers, request(prompt()), NEW).worker
    decision = router.choose(workers, request(prompt(), sampling_params=unread), NEW)

    assert decision.cached == 0
    assert decision.worker is not holder


def test_a_restarted_worker_has_an_empty_cache(router: Router, workers: list[Worker]) -> None:
    """So has one with other weights; entries of other workers stay."""
    held = prompt(first=1)
    holder = router.choose(workers[:1], request(held), NEW).worker
    router.choose(workers[1:2], request(held), NEW)

    router.on_worker_state(workers[1], "new weights")
    holder.instance_id = "restarted"
    router.on_worker_state(holder, "weights")

    assert router.choose(workers, request(held), NEW).cached == 0


def test_a_removed_worker_is_forgotten(router: Router, workers: list[Worker]) -> None:
    """Its address may return with another process."""
    holder = router.choose(workers, request(prompt()), NEW).worker
    router.forget(holder)
    router.on_worker_state(holder, "weights")
    assert router.choose([holder], request(prompt()), NEW).cached == 0


def test_avoided_workers_come_last(router: Router, workers: list[Worker]) -> None:
    """They are chosen only if there is no other, whatever they hold."""
    holder = router.choose(workers, request(prompt()), NEW).worker
    lost = Placement(avoid=frozenset({holder.instance_id}), resumed=True)

    assert router.choose(workers, request(prompt()), lost).worker is not holder
    decision = router.choose([holder], request(prompt()), lost)
    assert decision.worker is holder
    assert 'why="no other can take it"' in decision.explain()


def test_a_conversation_keeps_its_worker_unless_another_is_clearly_better(
    router: Router, workers: list[Worker]
) -> None:
    """Even if nothing of the prompt is cached; the discount is limited."""
    first = router.choose(workers, request(prompt(first=1), session_id="s"), NEW).worker

    first.take(prompt=CONVERSATION_TOKENS - 100)
    stayed = router.choose(workers, request(prompt(first=2), session_id="s"), NEW)
    assert stayed.worker is first
    assert "had the conversation last" in stayed.explain()
    first.take(prompt=100)
    assert router.choose(workers, request(prompt(first=3), session_id="s"), NEW).worker is not first


def test_an_adapter_is_used_on_the_worker_that_used_it_last(router: Router, workers: list[Worker]) -> None:
    """Another worker might have to load it first."""
    red = pb.LoraAdapter(name="red", id=3)
    first = router.choose(workers, request([1], lora=red), NEW).worker
    again = router.choose(workers, request([2], lora=red), NEW)
    assert again.worker is first
    assert "used the adapter last" in again.explain()


@pytest.mark.parametrize("policy", ["load", "round-robin"])
def test_other_policies_ignore_prefixes(workers: list[Worker], policy: str) -> None:
    """Least load counts sequences, round robin nothing."""
    router = Router(policy)  # type: ignore[arg-type]
    for worker in workers:
        router.on_worker_state(worker, "weights")
    workers[0].take(sequences=2)
    workers[1].take(sequences=1, prompt=5000)

    chosen = [router.choose(workers, request(prompt()), NEW).worker.address for _ in range(3)]

    assert chosen == (["three"] * 3 if policy == "load" else ["one", "two", "three"])


def test_work_ahead_is_prompts_and_sequences() -> None:
    """A prompt counts until it is computed, a sequence until it ends."""
    worker = Worker("one")
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
    worker = Worker("one")
    worker.take()
    worker.report(running=5, waiting=2)
    assert worker.workload.sequences == 7
    worker.take()
    assert worker.workload.sequences == 8

    worker.clock.now += 10
    assert worker.workload.sequences == 2


def test_a_full_worker_costs_more_than_its_prompts() -> None:
    """Without free sequences or memory, a request waits for a sequence to end."""
    full, out_of_memory = Worker("full"), Worker("memory")
    full.workload.begin(4, pb.Load())
    full.take(sequences=5)
    assert full.workload.ahead() == 5 * SEQUENCE_TOKENS + 2 * QUEUED_TOKENS

    out_of_memory.take(sequences=5)
    out_of_memory.report(running=2, waiting=3, kv_cache_usage=0.99)
    assert out_of_memory.workload.ahead() == 5 * SEQUENCE_TOKENS + 3 * QUEUED_TOKENS


def test_a_workload_is_reset_for_a_new_session() -> None:
    """Prompts in flight are removed."""
    worker = Worker("one")
    worker.take(prompt=700)
    worker.slots.release_all()
    worker.workload.begin(256, pb.Load())
    assert worker.workload.ahead() == 0


def test_the_ttl_cache_is_bounded_and_expires() -> None:
    """The least recently used entries are evicted first."""
    clock = Clock()
    cache = TTLCache(2, 60.0, clock)
    for key in ("a", "b", "a", "c"):
        cache.put(key, f"worker of {key}")

    assert (cache.get("a"), cache.get("b"), cache.get("c")) == ("worker of a", None, "worker of c")
    clock.now += 61
    assert cache.get("a") is None
    assert len(cache) == 2


def test_a_restarted_worker_process_leaves_no_entries() -> None:
    """However often a worker restarts at its address, only the current process is stored."""
    router, sizes = Router(), set()
    for number in range(5):
        worker = Worker("one", f"instance {number}")
        router.on_worker_state(worker, "weights")
        router.choose([worker], request(prompt()), NEW)
        sizes.add(_size(router))

    router.on_worker_state(Worker("one", "instance 4"), "other weights")

    assert sizes == {_size(router)}


def _size(router: Router) -> int:
    """Count the entries of all tables of a router."""
    return sum(len(value) for value in vars(router).values() if isinstance(value, dict))
