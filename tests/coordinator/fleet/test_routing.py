"""The choice of a worker, its cost, and its explanation."""

import pytest

from tests.clock import Clock
from tests.coordinator.fleet.loaded_worker import LoadedWorker
from tokenwire.coordinator.fleet.request_handle import NEW, Placement
from tokenwire.coordinator.fleet.routing import CONVERSATION_TOKENS, MEDIA_TOKENS, Router, TTLCache
from tokenwire.coordinator.fleet.submission import Submission
from tokenwire.coordinator.media.content import MediaContent, MediaPrompt
from tokenwire.protocol.prefix_hash import prefix_hashes
from tokenwire.v1 import inference_pb2 as pb


def prompt(tokens: int = 1024, first: int = 0) -> list[int]:
    """Return ids that share no prefix with those of another first id."""
    return [first, *range(1, tokens)]


def submit_of(token_ids: list[int], **fields: object) -> Submission:
    """Return a request."""
    return Submission(prompt_token_ids=token_ids, **fields)  # type: ignore[arg-type]


@pytest.fixture
def workers() -> list[LoadedWorker]:
    """Three idle workers."""
    return [LoadedWorker(name) for name in ("one", "two", "three")]


@pytest.fixture
def router(workers: list[LoadedWorker]) -> Router:
    """A router over the workers."""
    router = Router()
    for worker in workers:
        router.on_worker_state(worker, "weights")
    return router


def test_a_prompt_goes_to_the_worker_with_its_prefix(router: Router, workers: list[LoadedWorker]) -> None:
    """Others go to the workers chosen least recently; cached tokens are not counted as work."""
    first = router.choose(workers, submit_of(prompt(first=1)), NEW)
    other = router.choose(workers, submit_of(prompt(first=2)), NEW)
    again = router.choose(workers, submit_of([*prompt(first=1), *range(500)]), NEW)

    assert other.worker is not first.worker
    assert again.worker is first.worker
    assert (again.cached, again.new) == (1024, 500)
    assert again.explain() == f'{first.worker.address}; cached=1024; ahead=0; why="holds a part of the prompt"'


def test_a_cached_prompt_still_costs_a_token(router: Router, workers: list[LoadedWorker]) -> None:
    """The engine always computes the last one."""
    router.choose(workers, submit_of(prompt()), NEW)
    assert router.choose(workers, submit_of(prompt()), NEW).new == 1


def test_affinity_ends_where_it_costs_more_than_it_saves(router: Router, workers: list[LoadedWorker]) -> None:
    """When the worker with the prefix has more work than the prefix saves, another one computes it again."""
    holder = router.choose(workers, submit_of(prompt()), NEW).worker

    holder.take(prompt=900)
    assert router.choose(workers, submit_of(prompt()), NEW).worker is holder
    holder.take(prompt=900)
    decision = router.choose(workers, submit_of(prompt()), NEW)

    assert decision.worker is not holder
    assert (decision.cached, decision.ahead) == (0, 0)
    assert decision.explain().endswith('; cached=0; ahead=0; why="least work ahead"')


@pytest.mark.parametrize(
    "fields",
    [{"cache_salt": "mine"}, {"lora": pb.LoraAdapter(name="red", id=3)}, {"data_parallel_rank": 1}],
    ids=["salt", "adapter", "rank"],
)
def test_caches_that_are_not_shared_do_not_match(
    router: Router, workers: list[LoadedWorker], fields: dict[str, object]
) -> None:
    """The same ids with another salt, adapter or rank are another prompt."""
    router.choose(workers, submit_of(prompt()), NEW)

    assert router.choose(workers, submit_of(prompt(), **fields), NEW).cached == 0
    assert router.choose(workers, submit_of(prompt(), **fields), NEW).cached == 1023
    assert router.choose(workers, submit_of(prompt()), NEW).cached == 1023


def test_a_request_that_skips_the_cache_saves_nothing(router: Router, workers: list[LoadedWorker]) -> None:
    """But its own prompt is in the cache for the next one."""
    uncached = pb.SamplingParams(prompt_logprobs=1)

    holder = router.choose(workers, submit_of(prompt()), NEW).worker
    decision = router.choose(workers, submit_of(prompt(), sampling_params=uncached), NEW)

    assert decision.cached == 0
    assert decision.worker is not holder


def test_a_restarted_worker_has_an_empty_cache(router: Router, workers: list[LoadedWorker]) -> None:
    """So has one with other weights; entries of other workers stay."""
    held = prompt(first=1)
    holder = router.choose(workers[:1], submit_of(held), NEW).worker
    router.choose(workers[1:2], submit_of(held), NEW)

    router.on_worker_state(workers[1], "new weights")
    holder.instance_id = "restarted"
    router.on_worker_state(holder, "weights")

    assert router.choose(workers, submit_of(held), NEW).cached == 0


def test_a_worker_takes_no_prefixes_by_the_instance_id_of_another(workers: list[LoadedWorker]) -> None:
    """It chooses its own."""
    router = Router()
    for worker in workers:
        worker.instance_id = "the same"
        router.on_worker_state(worker, "weights")
    holder, other, _ = workers
    router.choose([holder], submit_of(prompt()), NEW)

    router.on_kv_events(other, pb.CacheChange(cleared=True))
    router.remove(other)

    assert router.choose([holder], submit_of(prompt()), NEW).cached == 1023
    assert router.choose([other], submit_of(prompt()), NEW).cached == 0


def test_events_of_one_worker_evict_no_prefixes_of_others(workers: list[LoadedWorker], time: Clock) -> None:
    """Beyond its share of the index, it gets room as fast as an engine computes."""
    router = Router(clock=time)
    for worker in workers:
        router.on_worker_state(worker, "weights")
    holder, flooding, _ = workers
    router.choose([holder], submit_of(prompt()), NEW)

    for number in range(8):
        stored = range(number * 100_000, (number + 1) * 100_000)
        router.on_kv_events(flooding, pb.CacheChange(stored=stored))
        time.now += 1
    assert router.choose([holder], submit_of(prompt()), NEW).cached == 1023

    hashes = prefix_hashes(prompt(first=7))
    router.on_kv_events(flooding, pb.CacheChange(stored=[*range(10**9, 10**9 + 100_000), *hashes]))
    assert router.choose([flooding], submit_of(prompt(first=7)), NEW).cached == 1023


def test_a_removed_worker_holds_no_prefixes(router: Router, workers: list[LoadedWorker]) -> None:
    """Its address may return with another process."""
    holder = router.choose(workers, submit_of(prompt()), NEW).worker
    router.remove(holder)
    router.on_worker_state(holder, "weights")
    assert router.choose([holder], submit_of(prompt()), NEW).cached == 0


def test_avoided_workers_come_last(router: Router, workers: list[LoadedWorker]) -> None:
    """They are chosen only if there is no other, whatever they hold."""
    holder = router.choose(workers, submit_of(prompt()), NEW).worker
    lost = Placement(avoid=frozenset({holder.instance_id}), resumed=True)

    assert router.choose(workers, submit_of(prompt()), lost).worker is not holder
    decision = router.choose([holder], submit_of(prompt()), lost)
    assert decision.worker is holder
    assert 'why="no other can take it"' in decision.explain()


def test_a_conversation_keeps_its_worker_unless_another_is_clearly_better(
    router: Router, workers: list[LoadedWorker]
) -> None:
    """Even if nothing of the prompt is cached; the discount is limited."""
    first = router.choose(workers, submit_of(prompt(first=1), session_id="s"), NEW).worker

    first.take(prompt=CONVERSATION_TOKENS - 100)
    stayed = router.choose(workers, submit_of(prompt(first=2), session_id="s"), NEW)
    assert stayed.worker is first
    assert "had the conversation last" in stayed.explain()
    first.take(prompt=100)
    assert router.choose(workers, submit_of(prompt(first=3), session_id="s"), NEW).worker is not first


def test_an_adapter_is_used_on_the_worker_that_used_it_last(router: Router, workers: list[LoadedWorker]) -> None:
    """Another worker might have to load it first."""
    red = pb.LoraAdapter(name="red", id=3)
    first = router.choose(workers, submit_of([1], lora=red), NEW).worker
    again = router.choose(workers, submit_of([2], lora=red), NEW)
    assert again.worker is first
    assert "used the adapter last" in again.explain()


def test_pictures_go_to_the_worker_that_has_processed_them(router: Router, workers: list[LoadedWorker]) -> None:
    """Unless it has much more to do."""
    media = MediaPrompt([MediaContent(b"x")], [1], 1, [(0, 1)], expanded_by=workers[2].instance_id)
    chosen = router.choose(workers, submit_of([1], media=media), NEW)
    assert chosen.worker is workers[2]
    assert "has processed the pictures" in chosen.explain()
    workers[2].take(prompt=MEDIA_TOKENS)
    assert router.choose(workers, submit_of([1], media=media), NEW).worker is not workers[2]


@pytest.mark.parametrize("policy", ["load", "round-robin"])
def test_other_policies_ignore_prefixes(workers: list[LoadedWorker], policy: str) -> None:
    """Least load counts sequences, round robin nothing."""
    router = Router(policy)  # type: ignore[arg-type]
    for worker in workers:
        router.on_worker_state(worker, "weights")
    workers[0].take(sequences=2)
    workers[1].take(sequences=1, prompt=5000)

    chosen = [router.choose(workers, submit_of(prompt()), NEW).worker.address for _ in range(3)]

    assert chosen == (["three"] * 3 if policy == "load" else ["one", "two", "three"])


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
        worker = LoadedWorker("one", f"instance {number}")
        router.on_worker_state(worker, "weights")
        router.choose([worker], submit_of(prompt()), NEW)
        sizes.add(_size(router))

    router.on_worker_state(LoadedWorker("one", "instance 4"), "other weights")

    assert sizes == {_size(router)}


def _size(router: Router) -> int:
    """Count the entries of all tables of a router."""
    return sum(len(value) for value in vars(router).values() if isinstance(value, dict))
