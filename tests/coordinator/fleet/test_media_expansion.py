"""Tests of expansions of prompts: which workers are asked.

One file, since all are about the choice of the next worker, by the same fakes.
"""

import asyncio
import re
from types import SimpleNamespace
from typing import Any

import pytest

from tests.workers import until
from tokenwire.coordinator.fleet.media_answers import Expansion
from tokenwire.coordinator.fleet.media_expansion import MediaExpander
from tokenwire.coordinator.fleet.request_handle import Placement
from tokenwire.coordinator.media.content import MediaContent
from tokenwire.errors import (
    EngineFailed,
    InvalidRequest,
    Overloaded,
    PromptTooLong,
    TokenwireError,
    Unavailable,
    Unsupported,
)

ITEM = MediaContent(b"x")
ANSWER = Expansion([1, 9, 9, 9], [(1, 3)])


class Asked:
    """A worker that answers an expansion, or fails."""

    def __init__(
        self,
        answer: Expansion | TokenwireError = ANSWER,
        lacks: int = 0,
        slots: int = 0,
        unsupported: frozenset[str] = frozenset(),
        address: str = "worker",
    ) -> None:
        self.address = self.instance_id = address
        self.unsupported = unsupported
        self.salt: str | None = None
        self.tenants: list[str] = []
        self.takes_media = True
        self.open_slots = slots
        self.asked = 0
        self.blamed_by: list[str] = []
        self.count_failed = self.blamed_by.extend
        self.media = SimpleNamespace(lacks=lambda items: lacks, expand=self.expand, is_silent=False, open_calls=0)
        self._answer = answer
        self.may_answer = asyncio.Event()
        self.answered_late = 0

    def hang(self, answers_others: bool = False) -> None:
        """Answer nothing from now on, but for others than who asks here."""
        self.media.expand = self._hang
        self._answers_others = answers_others

    async def _hang(self, *given: Any, **named: Any) -> Expansion:
        self.asked += 1
        self.media.is_silent = not self._answers_others
        self.media.open_calls += 1
        await self.may_answer.wait()
        self.answered_late += 1
        assert isinstance(self._answer, Expansion)
        return self._answer

    async def expand(
        self,
        token_ids: Any,
        items: Any,
        options_json: str | None,
        max_token_ids: int,
        cache_salt: str | None = None,
        mm_payload: str = "",
        tenant: str = "",
    ) -> Expansion:
        """Count, and answer."""
        self.asked += 1
        self.tenants.append(tenant)
        self.salt = cache_salt
        if isinstance(self._answer, TokenwireError):
            raise self._answer
        if not mm_payload:
            return self._answer
        return self._answer._replace(features_json=f"{[*token_ids]} {options_json} {mm_payload}".encode())


def expander_of(*workers: Any) -> MediaExpander:
    """Return an expander in front of workers."""
    return MediaExpander(pool_of(*workers), patience_s=0.001)


def pool_of(*workers: Any) -> Any:
    """Return workers that count how often they are looked at."""

    def candidates(model: str, adapter_id: int, placement: Any) -> list[Any]:
        pool.looks += 1
        return list(workers)

    pool: Any = SimpleNamespace(
        looks=0,
        candidates_to_place=candidates,
        unavailable_reason=lambda model: "",
    )
    return pool


async def test_a_worker_that_has_the_media_is_asked_before_an_idle_one() -> None:
    """To put a picture costs more than to wait for a busy worker; among equals it is the one with least to do."""
    has, idle, busy = Asked(slots=5), Asked(lacks=1000), Asked(slots=9)
    token_ids, media = await expander_of(idle, busy, has).expand("model", [1, 2], [ITEM], "{}")
    assert (list(token_ids), media.length, media.spans, media.options_json) == ([1, 9, 9, 9], 4, [(1, 3)], "{}")
    assert (has.asked, idle.asked, busy.asked) == (1, 0, 0)


async def test_a_request_waits_while_there_is_no_worker() -> None:
    """As requests without pictures do in the queue, and no longer; a model that nobody serves is known before."""
    worker = Asked()
    pool, found = pool_of(), list[Any]()
    pool.candidates_to_place = lambda model, adapter_id, placement: found
    pool.unavailable_reason = lambda model: "" if found else "No worker serves model right now"
    with pytest.raises(Unavailable, match="No worker serves model right now"):
        await MediaExpander(pool, absence_s=0.002, look_s=0.001).expand("model", [1], [ITEM])

    waiting = asyncio.create_task(MediaExpander(pool, absence_s=600, look_s=0.001).expand("model", [1], [ITEM]))
    await asyncio.sleep(0)
    found.append(worker)

    assert list((await waiting)[0]) == list(ANSWER.token_ids)
    assert worker.asked == 1


async def test_options_are_for_workers_that_take_them() -> None:
    """Where there is none, the request is told; the salt is passed on."""
    plain, able = Asked(unsupported=frozenset({"mm_processor_kwargs"})), Asked(lacks=1000)
    await expander_of(plain, able).expand("model", [1], [ITEM], "{}", cache_salt="salt")
    await expander_of(plain, able).expand("model", [1], [ITEM])
    assert (able.asked, able.salt, plain.asked, plain.salt) == (1, "salt", 1, None)
    with pytest.raises(InvalidRequest, match="mm_processor_kwargs or media_io_kwargs") as refused:
        await expander_of(plain).expand("model", [1], [ITEM], "{}")
    assert refused.value.param == "mm_processor_kwargs"


async def test_workers_are_told_whose_request_it_is() -> None:
    """For expansions as for features."""
    worker, placement = Asked(), Placement(tenant="search")
    _, media = await expander_of(worker).expand("model", [1], [ITEM], placement=placement)
    await expander_of(worker).features("model", media, "none", placement)
    assert worker.tenants == ["search"] * 2


@pytest.mark.parametrize("error", [Unavailable("lost"), EngineFailed("dead"), Overloaded("full")])
async def test_another_worker_is_asked_if_one_fails(error: TokenwireError) -> None:
    """That is not the client's fault."""
    fails, other = Asked(error), Asked(slots=1)
    await expander_of(fails, other).expand("model", [1], [ITEM])
    assert (fails.asked, other.asked, fails.blamed_by) == (1, 1, [])


async def test_two_workers_say_that_a_picture_is_bad() -> None:
    """Of one, or if no other answers, it is believed; two are enough."""
    error = InvalidRequest("broken")
    workers = [Asked(error), Asked(error), Asked(slots=1)]
    with pytest.raises(InvalidRequest, match="broken"):
        await expander_of(*workers).expand("model", [1], [ITEM])
    assert [each.asked for each in workers] == [1, 1, 0]
    with pytest.raises(InvalidRequest, match="broken"):
        await expander_of(Asked(error)).expand("model", [1], [ITEM])
    dead = [Asked(Unavailable("lost"), slots=1) for _ in range(3)]
    with pytest.raises(InvalidRequest, match="broken"):
        await expander_of(Asked(error), *dead).expand("model", [1], [ITEM])
    assert not any(each.blamed_by for each in (*workers, *dead))
    silent = Asked()
    silent.media.is_silent = True
    with pytest.raises(InvalidRequest, match="broken"):
        await expander_of(Asked(error), silent).expand("model", [1], [ITEM])
    assert silent.asked == 0


async def test_a_worker_that_refuses_what_another_expands_is_blamed() -> None:
    """Also one that says that a prompt is too long."""
    liar, other = Asked(PromptTooLong(2**32 - 1, 1000)), Asked(slots=1, address="other")
    await expander_of(liar, other).expand("model", [1], [ITEM])
    assert (liar.blamed_by, other.blamed_by) == (["other"], [])


async def test_a_worker_that_adds_ids_outside_the_vocabulary_has_failed() -> None:
    """The client is not told that its prompt has them, unless it sent them itself."""
    liar, other = Asked(ANSWER._replace(token_ids=[1, 2**32 - 1, 9, 9])), Asked(slots=1)
    token_ids, _ = await expander_of(liar, other).expand("model", [1], [ITEM], max_token_id=100)
    assert list(token_ids) == list(ANSWER.token_ids)
    await expander_of(other).expand("model", [1, 200], [ITEM], max_token_id=100)
    with pytest.raises(Unavailable, match="No other worker"):
        await expander_of(liar).expand("model", [], [ITEM], max_token_id=100)


async def test_a_few_workers_are_asked_at_most() -> None:
    """Then the last error is the client's; without a worker there is one too."""
    workers = [Asked(EngineFailed("dead")) for _ in range(5)]
    with pytest.raises(EngineFailed):
        await expander_of(*workers).expand("model", [1], [ITEM])
    assert sum(each.asked for each in workers) == 3
    with pytest.raises(Unavailable, match="No other worker"):
        await expander_of().expand("model", [1], [ITEM])


async def test_features_are_those_of_the_prompt_before_its_expansion() -> None:
    """With its options; a worker of an older version, which has no such call, is an error that says so."""
    worker = Asked()
    _, media = await expander_of(worker).expand("model", [1, 2], [ITEM], "{}")
    assert await expander_of(worker).features("model", media, "none") == b"[1, 2] {} none"
    with pytest.raises(Unsupported, match=r"can render requests with pictures \(no such call\)"):
        await expander_of(Asked(Unsupported("no such call"))).features("model", media, "none")


async def test_features_are_not_asked_of_plain_servers() -> None:
    """Where there is no other worker, that is an error that says so."""
    plain, able = Asked(unsupported=frozenset({"mm_payload"})), Asked(lacks=1000)
    _, media = await expander_of(plain).expand("model", [1, 2], [ITEM])
    assert await expander_of(plain, able).features("model", media, "tensors") == b"[1, 2] None tensors"
    with pytest.raises(Unsupported, match="plain vLLM servers cannot"):
        await expander_of(plain).features("model", media, "tensors")


async def test_a_worker_that_answers_nobody_is_left_for_another() -> None:
    """Those who wait for it do not wait until its timeout, and those who come later do not ask it at all."""
    hanging, other = Asked(), Asked(lacks=1000, slots=50)
    hanging.hang()
    expander = expander_of(hanging, other)
    for _ in range(3):
        await expander.expand("model", [1], [ITEM])
    assert (hanging.asked, other.asked) == (1, 3)


async def test_a_silent_worker_may_still_answer() -> None:
    """One call: nobody waits for it, but then it is known to be slow; of a busy one the call is cancelled."""
    slow, busy, other = Asked(address="slow"), Asked(address="busy"), Asked(lacks=1000)
    slow.hang()
    busy.hang(answers_others=True)
    expander = expander_of(slow, busy, other)
    expansions = [expander.expand("model", [1], [ITEM]) for _ in range(3)]
    await asyncio.gather(*expansions)
    assert slow.asked == 3
    for each in (slow, busy):
        each.may_answer.set()
    await until(lambda: slow.answered_late > 0)
    assert (slow.answered_late, busy.answered_late) == (1, 0)


async def test_a_worker_that_keeps_one_request_is_left_for_one_with_fewer_calls() -> None:
    """It may answer others; without such a worker, and as the last one that is asked, it is waited for."""
    picky, other = Asked(), Asked(lacks=1000)
    picky.hang(answers_others=True)
    await expander_of(picky, other).expand("model", [1], [ITEM])
    assert (picky.asked, other.asked) == (1, 1)

    busy = [Asked() for _ in range(3)]
    for each in busy:
        each.hang(answers_others=True)
    pool = pool_of(*busy, Asked(lacks=1000))
    waiting = asyncio.create_task(MediaExpander(pool, patience_s=0.001).expand("model", [1], [ITEM]))
    await until(lambda: all(each.asked for each in busy))
    busy[2].may_answer.set()
    await waiting
    assert [each.asked for each in busy] == [1, 1, 1]


async def test_pictures_are_spread_over_workers_that_have_as_much_to_do() -> None:
    """By what they are, so that each goes to the same one from every coordinator; the order of workers is nothing."""
    workers = [Asked(address=f"w{number}") for number in range(4)]
    pictures = [[MediaContent(b"%d" % number)] for number in range(200)]
    for picture in pictures:
        await expander_of(*workers).expand("model", [1], picture)
    asked = [each.asked for each in workers]
    assert min(asked) > 20
    for picture in pictures:
        await expander_of(*reversed(workers)).expand("model", [1], picture)
    assert [each.asked for each in workers] == [2 * each for each in asked]


async def test_a_worker_with_fewer_calls_to_answer_is_asked_first() -> None:
    """Of those that would have to be put the picture."""
    workers = [Asked(address=f"w{number}") for number in range(4)]
    for each in workers[:3]:
        each.media.open_calls = 1
    for number in range(8):
        await expander_of(*workers).expand("model", [1], [MediaContent(b"%d" % number)])
    assert [each.asked for each in workers] == [0, 0, 0, 8]


async def test_without_another_worker_a_silent_one_is_waited_for() -> None:
    """It may be loading its processors; the timeout of its call decides."""
    hanging = Asked()
    hanging.hang()
    pool = pool_of(hanging)
    waiting = asyncio.create_task(MediaExpander(pool, patience_s=0.001).expand("model", [1], [ITEM]))
    await until(lambda: pool.looks > 5)
    assert not waiting.done()
    waiting.cancel()


@pytest.mark.parametrize(
    ("modality", "message"),
    [
        ("image_embeds", "You must set `--enable-mm-embeds` to input `image_embeds`"),
        ("image", "At most 0 image(s) may be provided in one prompt."),
    ],
)
async def test_media_go_to_workers_that_take_their_kind(modality: str, message: str) -> None:
    """Where there is none, the request is refused in vLLM's words."""
    cannot, can = Asked(unsupported=frozenset({modality})), Asked(slots=9)
    item = MediaContent(b"x", modality)
    await expander_of(cannot, can).expand("m", [1], [item])
    assert (cannot.asked, can.asked) == (0, 1)
    with pytest.raises(InvalidRequest, match=re.escape(message)):
        await expander_of(cannot).expand("m", [1], [item])
