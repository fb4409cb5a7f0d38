"""Requests that killed workers are rejected by their fingerprint, and no others."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.clock import Clock
from tokenwire.coordinator.fleet.failover.poison_cache import PoisonCache, fingerprint_of
from tokenwire.coordinator.fleet.failover.poison_journal import PoisonJournal
from tokenwire.coordinator.fleet.submission import Submission
from tokenwire.coordinator.media.content import MediaContent, MediaPrompt
from tokenwire.errors import PoisonRequest, Unavailable
from tokenwire.v1 import inference_pb2 as pb


def short_submission(prompt: int = 1, request_id: str = "r", **sampling: Any) -> Submission:
    """Return a request."""
    params = pb.SamplingParams(**sampling)
    return Submission(request_id=request_id, prompt_token_ids=[prompt], sampling_params=params, max_tokens=10)


POISON, OTHER = short_submission(66), short_submission(5)


@pytest.fixture
def living() -> dict[str, bool | None]:
    """Lost workers whose processes still run, or may."""
    return {}


@pytest.fixture
def cache(time: Clock, living: dict[str, bool | None]) -> PoisonCache:
    """An empty cache; processes of lost workers are gone unless a test changes that."""
    return PoisonCache(lambda instance_id: living.get(instance_id, False), time)


def lose(cache: PoisonCache, instance_id: str, *recent_starts: Submission) -> None:
    """Record the death of a worker that had just started these."""
    cache.on_worker_lost("m", instance_id, False, recent_starts)


def test_a_request_that_killed_twice_is_rejected_for_a_while(cache: PoisonCache, time: Clock) -> None:
    """However often it is sent; others are served, and after ten minutes it is admitted again."""
    lose(cache, "a", POISON, OTHER)
    cache.check("m", POISON)
    cache.check("m", OTHER)
    lose(cache, "b", short_submission(66, request_id="again", seed=None))

    with pytest.raises(PoisonRequest, match="Two workers died"):
        cache.check("m", short_submission(66, request_id="and again"))
    cache.check("m", OTHER)
    cache.check("another model", POISON)
    time.now += 601
    cache.check("m", POISON)


def test_workers_that_served_nobody_else_are_less_proof(cache: PoisonCache) -> None:
    """Three are enough, and a worker that restarts is one."""
    for instance_id, address in (("a", "a:1"), ("b", "b:1"), ("a2", "a:1")):
        cache.on_worker_lost("m", instance_id, True, [POISON], address)
        cache.check("m", POISON)
    cache.on_worker_lost("m", "c", True, [POISON, OTHER], "c:1")

    with pytest.raises(PoisonRequest):
        cache.check("m", POISON)
    cache.check("m", OTHER)


def test_a_worker_that_served_nobody_says_nothing_about_an_isolated_retry(cache: PoisonCache) -> None:
    """The request is tried again."""
    lose(cache, "a", POISON, OTHER)
    lose(cache, "b", POISON, OTHER)
    cache.check("m", POISON)
    cache.on_worker_lost("m", "c", True, [POISON], "c:1")
    cache.check("m", POISON)
    cache.on_worker_lost("m", "d", True, [POISON])

    with pytest.raises(PoisonRequest):
        cache.check("m", POISON)


def test_a_worker_that_served_another_process_counts_in_full(time: Clock, tmp_path: Path) -> None:
    """Each process that loses it says whether it was served."""
    one, other = (PoisonCache(lambda instance_id: False, time, PoisonJournal(tmp_path)) for _ in range(2))
    one.on_worker_lost("m", "a", True, [POISON], "a:1")
    other.on_worker_lost("m", "a", True, [POISON])
    one.on_worker_lost("m", "b", True, [POISON])

    for cache in (one, other):
        with pytest.raises(PoisonRequest):
            cache.check("m", POISON)


def test_a_worker_that_responds_again_did_not_die(cache: PoisonCache, living: dict[str, bool | None]) -> None:
    """It does not count."""
    lose(cache, "a", POISON)
    lose(cache, "b", POISON)
    living["b"] = True
    cache.check("m", POISON)
    living["b"] = False
    with pytest.raises(PoisonRequest):
        cache.check("m", POISON)


def test_a_worker_that_may_have_died_holds_the_request_back(
    cache: PoisonCache, time: Clock, living: dict[str, bool | None]
) -> None:
    """For half a minute, while it would be poison if the worker died; others are served."""
    living["b"] = None
    lose(cache, "b", POISON, OTHER)
    cache.check("m", POISON)
    lose(cache, "a", POISON)

    with pytest.raises(Unavailable, match="not known yet whether they died"):
        cache.check("m", POISON)
    cache.check("m", OTHER)
    time.now += 31
    cache.check("m", POISON)


def test_a_death_that_is_certain_needs_no_proof(cache: PoisonCache, living: dict[str, bool | None]) -> None:
    """The worker said so itself, or its engine hangs while its process still runs."""
    living.update(a=True, b=True)
    for instance_id in "ab":
        cache.on_worker_lost("m", instance_id, True, [POISON])

    with pytest.raises(PoisonRequest):
        cache.check("m", POISON)


def test_a_request_that_a_worker_survived_is_cleared(cache: PoisonCache) -> None:
    """A frequent prompt is suspect in every death, and gets its tokens in between."""
    lose(cache, "a", POISON, OTHER)
    cache.on_worker_survived("m", OTHER)
    lose(cache, "b", POISON, OTHER)

    cache.check("m", OTHER)
    with pytest.raises(PoisonRequest):
        cache.check("m", POISON)


def test_several_suspects_are_retried_in_isolation(cache: PoisonCache) -> None:
    """The first one survives its retry, then the other one kills its worker."""
    lose(cache, "a", POISON, OTHER)
    lose(cache, "b", POISON, OTHER)

    cache.check("m", OTHER)
    with pytest.raises(Unavailable, match="tried first") as caught:
        cache.check("m", POISON)
    assert caught.value.retry_after_s == 1
    cache.on_worker_survived("m", OTHER)
    with pytest.raises(PoisonRequest):
        cache.check("m", POISON)
    cache.check("m", OTHER)


def test_a_request_that_kills_in_its_isolated_retry_is_rejected_alone(cache: PoisonCache) -> None:
    """The requests that died with it are not."""
    lose(cache, "a", POISON, OTHER)
    lose(cache, "b", POISON, OTHER)
    cache.check("m", POISON)
    cache.on_worker_lost("m", "c", True, [POISON, short_submission(7)])

    with pytest.raises(PoisonRequest):
        cache.check("m", POISON)
    cache.check("m", OTHER)
    cache.check("m", short_submission(7))


def test_an_isolated_retry_without_an_end_expires(cache: PoisonCache, time: Clock) -> None:
    """Its client may have disconnected."""
    lose(cache, "a", POISON, OTHER)
    lose(cache, "b", POISON, OTHER)
    cache.check("m", OTHER)
    time.now += 31
    cache.check("m", POISON)


def test_the_cache_is_bounded(cache: PoisonCache) -> None:
    """However many workers die, of however many requests."""
    for number in range(200):
        lose(cache, f"a{number}", short_submission(number))
    assert len(cache.deaths) == 64
    for number in range(3000):
        cache.add("m", short_submission(number))
    assert len(cache.poison) == 1024
    for number in range(200):
        lose(cache, f"b{number}", short_submission(number))
    assert len(cache.deaths) == 64


@pytest.fixture
def siblings(time: Clock, tmp_path: Path) -> tuple[PoisonCache, PoisonCache]:
    """Two processes of one port."""
    one, other = (PoisonCache(lambda _: False, time, PoisonJournal(tmp_path)) for _ in range(2))
    return one, other


def test_processes_of_a_port_share_their_losses(siblings: tuple[PoisonCache, PoisonCache], time: Clock) -> None:
    """A request that killed a worker of each process is rejected by both, for the same time."""
    one, other = siblings
    lose(one, "a", POISON, OTHER)
    one.check("m", POISON)
    lose(other, "b", POISON)

    for cache in siblings:
        with pytest.raises(PoisonRequest):
            cache.check("m", POISON)
        cache.check("m", OTHER)
    time.now += 601
    for cache in siblings:
        cache.check("m", POISON)


def test_a_worker_lost_by_two_processes_died_once(siblings: tuple[PoisonCache, PoisonCache]) -> None:
    """Both had sent it the same request, which is no more suspect for that."""
    for cache in siblings:
        lose(cache, "a", POISON)

    for cache in siblings:
        cache.check("m", POISON)
        assert len(cache.deaths) == 1


def test_what_any_process_had_sent_to_a_dead_worker_is_suspect(siblings: tuple[PoisonCache, PoisonCache]) -> None:
    """Each reports its own requests."""
    one, other = siblings
    lose(one, "a", OTHER)
    lose(other, "a", POISON)
    lose(one, "b", POISON)

    for cache in siblings:
        with pytest.raises(PoisonRequest):
            cache.check("m", POISON)
        cache.check("m", OTHER)


def test_a_survived_request_is_cleared_in_every_process(
    siblings: tuple[PoisonCache, PoisonCache],
) -> None:
    """Whichever of them sent it."""
    one, other = siblings
    lose(one, "a", POISON, OTHER)
    other.check("m", OTHER)
    other.on_worker_survived("m", OTHER)
    lose(one, "b", OTHER)

    one.check("m", OTHER)


def test_a_process_without_a_journal_keeps_its_own_events(tmp_path: Path, time: Clock) -> None:
    """As when the directory is gone."""
    cache = PoisonCache(lambda _: False, time, PoisonJournal(tmp_path / "gone"))
    for instance_id in "ab":
        lose(cache, instance_id, POISON)

    with pytest.raises(PoisonRequest):
        cache.check("m", POISON)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (short_submission(), short_submission(request_id="other"), True),
        (short_submission(seed=1), short_submission(seed=2), True),
        (short_submission(seed=1), short_submission(), False),
        (short_submission(presence_penalty=1.0, seed=1), short_submission(presence_penalty=1.0), True),
        (short_submission(), short_submission(2), False),
        (short_submission(), short_submission(temperature=0.5), False),
        (short_submission(logit_bias={1: 2.0, 3: 4.0}), short_submission(logit_bias={3: 4.0, 1: 2.0}), True),
    ],
)
def test_fingerprints_distinguish_what_affects_an_engine(one: Submission, other: Submission, same: bool) -> None:
    """Ids and values of seeds do not; nor does a seed set by the coordinator."""
    assert (fingerprint_of("m", one) == fingerprint_of("m", other)) is same


def test_fingerprints_include_what_else_may_be_the_cause() -> None:
    """The adapter, the model, pictures, and how they are processed."""
    adapted = short_submission()
    adapted.lora.name = "red"
    picture = MediaPrompt([MediaContent(b"x")], [1], 1, [(0, 1)])
    prints = {
        fingerprint_of("m", replace(short_submission(), media=picture)),
        fingerprint_of("m", replace(short_submission(), media=replace(picture, options_json="{}"))),
        fingerprint_of("m", short_submission()),
        fingerprint_of("m", adapted),
        fingerprint_of("n", short_submission()),
    }
    assert len(prints) == 5
