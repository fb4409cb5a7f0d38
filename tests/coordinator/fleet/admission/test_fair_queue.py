"""The order of queued requests, and how they leave it before their turn.

One file, since all tests are of one order, and each of its rules bears on the others.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest

from tests.coordinator.fleet.admission.fakes import MODEL, RESUMED, CapacityWorkers, QueuedPart, enqueue
from tests.workers import Listener, accept, submission
from tokenwire.coordinator.fleet.admission.queue import AdmissionQueue
from tokenwire.coordinator.fleet.admission.settings import AdmissionSettings
from tokenwire.coordinator.fleet.request_handle import NEW, Placement, RequestHandle
from tokenwire.coordinator.fleet.session import WorkerSession
from tokenwire.coordinator.fleet.slots import SlotListener
from tokenwire.coordinator.fleet.submission import Submission
from tokenwire.protocol.model_revision import ModelRevision
from tokenwire.v1 import inference_pb2 as pb


def enqueue_for(queue: AdmissionQueue, tenant: str, numbers: Iterable[int], tokens: int = 10) -> list[RequestHandle]:
    """Submit requests of a tenant, which are named after it."""
    placement = Placement(tenant=tenant)
    return [enqueue(queue, f"{tenant}-{number}", placement, tokens=tokens)[0] for number in numbers]


async def test_requests_are_placed_in_order() -> None:
    """The first one queued is the first placed, one for each free sequence, and may be aborted afterwards."""
    workers = CapacityWorkers()
    queue = AdmissionQueue(workers, AdmissionSettings())
    waiting = [enqueue(queue, name)[0] for name in "abc"]
    assert waiting[0].explain() == ""

    await workers.add_capacity()
    assert workers.started == ["a"]
    await workers.add_capacity(2)

    assert workers.started == ["a", "b", "c"]
    waiting[1].abort()
    assert [part.aborted for part in workers.parts] == [False, True, False]


async def test_a_new_request_does_not_overtake_queued_ones() -> None:
    """Capacity that was just freed belongs to the head of the queue."""
    workers = CapacityWorkers()
    queue = AdmissionQueue(workers, AdmissionSettings())
    enqueue(queue, "first")
    workers.capacities[0] = 1

    enqueue(queue, "second")
    await workers.add_capacity(0)

    assert workers.started == ["first"]


OLD, OTHER = ModelRevision(weights="old"), ModelRevision(weights="other")


@pytest.mark.parametrize(("first", "second"), [(OLD, OLD), (OLD, None), (None, OLD)])
async def test_one_that_the_same_workers_may_take_is_not_overtaken(
    first: ModelRevision | None, second: ModelRevision | None
) -> None:
    """Those without a revision go to workers of any."""
    workers = CapacityWorkers()
    queue = AdmissionQueue(workers, AdmissionSettings())
    enqueue(queue, "first", Placement(revision=first))
    workers.capacities[0] = 1

    enqueue(queue, "second", Placement(revision=second))
    await workers.add_capacity(0)

    assert workers.started == ["first"]


class OneRevisionWorkers(CapacityWorkers):
    """Workers with room, all of one revision."""

    def try_submit(
        self, model: str, submission: Submission, listeners: Sequence[SlotListener], placement: Placement = NEW
    ) -> QueuedPart | None:
        """Take what is of that revision."""
        if placement.revision != OTHER:
            return None
        return super().try_submit(model, submission, listeners, placement)


async def test_a_request_does_not_wait_behind_one_that_only_other_workers_may_take() -> None:
    """It is placed at once."""
    workers = OneRevisionWorkers(free=1)
    queue = AdmissionQueue(workers, AdmissionSettings())
    enqueue(queue, "old", Placement(revision=OLD))

    enqueue(queue, "other", Placement(revision=OTHER))

    assert workers.started == ["other"]


class LackingWorkers(CapacityWorkers):
    """Workers with room that lack what some requests need."""

    def try_submit(
        self, model: str, submission: Submission, listeners: Sequence[SlotListener], placement: Placement = NEW
    ) -> QueuedPart | None:
        """Take what needs nothing else."""
        if self.scarce_needs(model, submission):
            return None
        return super().try_submit(model, submission, listeners, placement)


async def test_a_request_does_not_wait_behind_one_that_needs_what_free_workers_lack() -> None:
    """That one waits for those that have it."""
    workers = LackingWorkers()
    queue = AdmissionQueue(workers, AdmissionSettings())
    workers.scarce["seeded"] = frozenset({"seed"})
    enqueue(queue, "seeded")
    enqueue(queue, "plain")

    await workers.add_capacity()

    assert workers.started == ["plain"]


class PlacesKept(CapacityWorkers):
    """Workers of which one tenant already keeps as much as it may."""

    def try_submit(
        self, model: str, submission: Submission, listeners: Sequence[SlotListener], placement: Placement = NEW
    ) -> QueuedPart | None:
        """Take what it does not keep."""
        keeps = placement.keeps_place and placement.tenant == "greedy"
        return None if keeps else super().try_submit(model, submission, listeners, placement)


async def test_a_tenant_that_keeps_as_much_as_it_may_holds_up_nobody() -> None:
    """Neither others, which would keep places too, nor its own requests that can be taken back."""
    workers = PlacesKept()
    queue = AdmissionQueue(workers, AdmissionSettings())
    for name, tenant, keeps in (("kept", "greedy", True), ("small", "small", True), ("own", "greedy", False)):
        enqueue(queue, name, Placement(tenant=tenant, keeps_place=keeps))

    await workers.add_capacity(3)

    assert sorted(workers.started) == ["own", "small"]
    assert queue.lengths() == {MODEL: (1, 1)}


async def test_a_tenant_is_told_that_it_may_keep_no_more() -> None:
    """It sees others served meanwhile."""
    queue = AdmissionQueue(PlacesKept(free=5), AdmissionSettings(queue_timeout_s=0.01))

    _, listener = enqueue(queue, "kept", Placement(tenant="greedy", keeps_place=True))
    await listener.ended.wait()

    assert listener.error is not None
    assert "keeps as many places as it may" in listener.error.message


async def test_resumed_requests_go_first_then_by_priority() -> None:
    """A reply that has started continues before others start; a lower priority value goes first."""
    workers = CapacityWorkers()
    queue = AdmissionQueue(workers, AdmissionSettings())
    enqueue(queue, "late", priority=5)
    enqueue(queue, "usual")
    enqueue(queue, "early", priority=-5)
    enqueue(queue, "resumed", RESUMED, priority=9)

    await workers.add_capacity(4)

    assert workers.started == ["resumed", "early", "usual", "late"]


async def test_tenants_get_equal_shares() -> None:
    """Many requests or long prompts of one do not delay the others."""
    workers = CapacityWorkers()
    queue = AdmissionQueue(workers, AdmissionSettings())
    enqueue_for(queue, "greedy", range(4), tokens=1000)
    enqueue_for(queue, "modest", range(3), tokens=100)

    await workers.add_capacity(7)

    # A request of the first tenant costs as much as three and a half of the other's.
    order = ["greedy-0", "modest-0", "modest-1", "modest-2", "greedy-1", "greedy-2", "greedy-3"]
    assert workers.started == order


async def test_a_tenant_with_twice_the_weight_gets_twice_the_share() -> None:
    """Of the work that starts while both wait."""
    workers = CapacityWorkers()
    queue = AdmissionQueue(workers, AdmissionSettings(max_queue=100))
    heavy = Placement(tenant="heavy", weight=2)
    for number in range(6):
        enqueue(queue, f"heavy-{number}", heavy)
    enqueue_for(queue, "light", range(6))

    await workers.add_capacity(6)

    assert [name.partition("-")[0] for name in workers.started].count("heavy") == 4


def end_part(part: QueuedPart, tokens: int, cached: int = 0) -> None:
    """End the sequences of a request after so many tokens."""
    for listener in part.listeners:
        listener.prefilled(pb.PrefillInfo(cached_tokens=cached))
        listener.step([1] * tokens, pb.Finish(reason=pb.FINISH_REASON_STOP))


async def test_shares_are_by_the_tokens_that_were_generated() -> None:
    """The first two cost as much in advance; then it turns out that one of them is ten times as long."""
    workers = CapacityWorkers()
    queue = AdmissionQueue(workers, AdmissionSettings(max_queue=100))
    for tenant in ("long", "short"):
        enqueue_for(queue, tenant, range(6))
    await workers.add_capacity(2)
    for part, tokens in zip(list(workers.parts), (2560, 246), strict=True):
        end_part(part, tokens)

    for _ in range(5):
        await workers.add_capacity()
        end_part(workers.parts[-1], 246)

    assert workers.started == ["long-0", "short-0", *[f"short-{number}" for number in range(1, 6)]]


async def test_a_long_reply_counts_before_it_ends() -> None:
    """Its tenant waits while it runs."""
    workers = CapacityWorkers()
    queue = AdmissionQueue(workers, AdmissionSettings(max_queue=100))
    for tenant in ("long", "short"):
        enqueue_for(queue, tenant, range(4))
    await workers.add_capacity(2)

    workers.parts[0].listeners[0].step([1] * 1000, None)
    await workers.add_capacity(3)

    assert workers.started == ["long-0", "short-0", "short-1", "short-2", "short-3"]


async def test_cached_prompts_are_cheaper() -> None:
    """Two thousand tokens count as two hundred if the worker had them."""
    workers = CapacityWorkers()
    queue = AdmissionQueue(workers, AdmissionSettings(max_queue=100))
    enqueue_for(queue, "cached", range(3), tokens=2000)
    enqueue_for(queue, "short", range(3), tokens=500)
    await workers.add_capacity(2)
    for part, cached in zip(list(workers.parts), (2000, 0), strict=True):
        end_part(part, 256, cached)

    await workers.add_capacity(1)

    assert workers.started == ["cached-0", "short-0", "cached-1"]


async def test_the_prompt_of_several_choices_is_cached_once() -> None:
    """It counted once, so it is given back once."""
    workers = CapacityWorkers()
    queue = AdmissionQueue(workers, AdmissionSettings(max_queue=100))
    enqueue(queue, "cached-0", Placement(tenant="cached"), n=2, tokens=2000)
    enqueue_for(queue, "cached", [1])
    enqueue_for(queue, "short", range(2), tokens=100)
    await workers.add_capacity(2)
    end_part(workers.parts[0], 256, cached=2000)
    await workers.add_capacity()
    assert workers.started == ["cached-0", "short-0"]

    await workers.add_capacity()

    assert workers.started[2:] == ["short-1"]


async def test_a_heavy_tenants_tokens_count_less() -> None:
    """Also those that are generated."""
    workers = CapacityWorkers()
    queue = AdmissionQueue(workers, AdmissionSettings(max_queue=100))
    for number in range(2):
        enqueue(queue, f"heavy-{number}", Placement(tenant="heavy", weight=4))
    enqueue_for(queue, "light", range(3))
    await workers.add_capacity(2)
    for part, tokens in zip(list(workers.parts), (1000, 300), strict=True):
        end_part(part, tokens)

    await workers.add_capacity()

    assert workers.started == ["heavy-0", "light-0", "heavy-1"]


async def test_an_aborted_request_counts_what_it_had() -> None:
    """On whichever worker, and as much of it as was sent."""
    workers = CapacityWorkers()
    queue = AdmissionQueue(workers, AdmissionSettings(max_queue=100))
    leaver, _ = enqueue(queue, "leaver-0", Placement(tenant="leaver"), n=4)
    enqueue_for(queue, "leaver", [1])
    enqueue_for(queue, "stayer", range(2))
    await workers.add_capacity(4)
    assert workers.started == ["leaver-0"]
    await workers.add_capacity()

    leaver.abort()
    await workers.add_capacity()

    assert workers.started == ["leaver-0", "stayer-0", "leaver-1"]


async def test_what_a_moved_sequence_had_counts() -> None:
    """What it gets elsewhere is not the doing of its tenant."""
    workers = CapacityWorkers()
    queue = AdmissionQueue(workers, AdmissionSettings(max_queue=100))
    placement = Placement(tenant="moved")
    handle = queue.submit(MODEL, submission(request_id="moved-0"), [Listener(), Listener()], placement)
    enqueue_for(queue, "moved", [1])
    enqueue_for(queue, "stayer", range(2))
    await workers.add_capacity(2)
    await workers.add_capacity()

    for session in (None, WorkerSession("other", "test", accept)):
        handle.abort_on(session)
    assert not workers.parts[0].aborted
    handle.abort_on(workers.parts[0].session)
    await workers.add_capacity()

    assert workers.started == ["moved-0", "stayer-0", "moved-1"]


async def test_without_keys_nothing_is_counted() -> None:
    """There is nobody to share with, and a call for each token is saved."""
    workers = CapacityWorkers()
    queue = AdmissionQueue(workers, AdmissionSettings())
    _, listener = enqueue(queue, "any")

    await workers.add_capacity()

    assert workers.parts[0].listeners == [listener]


async def test_requests_that_left_the_queue_take_nothing_of_their_tenants_share() -> None:
    """Only what was started counts: whoever gave up waiting is not last for it."""
    workers = CapacityWorkers()
    queue = AdmissionQueue(workers, AdmissionSettings(max_queue=100))
    impatient = Placement(tenant="impatient")
    enqueue_for(queue, "patient", range(3))
    for leaver in [enqueue(queue, "leaver", impatient)[0] for _ in range(10)]:
        leaver.abort()
    enqueue_for(queue, "impatient", range(3))

    await workers.add_capacity(4)

    assert workers.started == ["patient-0", "impatient-0", "patient-1", "impatient-1"]


async def test_requests_of_another_priority_take_nothing_of_their_tenants_share() -> None:
    """Tenants of one priority get equal shares, however many requests that come later they have queued."""
    workers = CapacityWorkers()
    queue = AdmissionQueue(workers, AdmissionSettings(max_queue=100))
    busy = Placement(tenant="busy")
    for _ in range(10):
        enqueue(queue, "later", busy, priority=1)
    enqueue_for(queue, "idle", range(3))
    enqueue_for(queue, "busy", range(3))

    await workers.add_capacity(4)

    assert workers.started == ["idle-0", "busy-0", "idle-1", "busy-1"]


async def test_a_resumed_request_takes_nothing_of_its_tenants_share_again() -> None:
    """It counted when it was first started."""
    workers = CapacityWorkers()
    queue = AdmissionQueue(workers, AdmissionSettings(max_queue=100))
    unlucky, lucky = Placement(tenant="unlucky"), Placement(tenant="lucky")
    enqueue(queue, "resumed", Placement(tenant="unlucky", resumed=True), tokens=1000)
    for number in range(2):
        enqueue(queue, f"unlucky-{number}", unlucky)
        enqueue(queue, f"lucky-{number}", lucky)

    await workers.add_capacity(4)

    assert workers.started == ["resumed", "unlucky-0", "lucky-0", "unlucky-1"]


async def test_a_tenant_that_comes_later_gets_its_share_from_then_on() -> None:
    """It does not catch up on what others had before, nor wait for requests that were never placed."""
    workers = CapacityWorkers()
    queue = AdmissionQueue(workers, AdmissionSettings())
    early = [enqueue(queue, f"early-{number}", Placement(tenant="early")) for number in range(6)]
    early[4][0].abort()
    await workers.add_capacity(2)
    for _, sequence in early[:2]:
        sequence.step([1] * 256, None)
    await workers.add_capacity(1)
    enqueue_for(queue, "late", range(2))

    await workers.add_capacity(4)

    assert workers.started == ["early-0", "early-1", "early-2", "late-0", "early-3", "late-1", "early-5"]


async def test_a_tenant_that_comes_back_does_not_catch_up() -> None:
    """It gets its share of what starts from then on, as one that comes for the first time."""
    workers = CapacityWorkers()
    queue = AdmissionQueue(workers, AdmissionSettings())
    returning = Placement(tenant="returning")
    _, first = enqueue(queue, "returning-0", returning)
    steady = [enqueue(queue, f"steady-{number}", Placement(tenant="steady")) for number in range(5)]
    await workers.add_capacity(3)
    for sequence in (first, *(sequence for _, sequence in steady[:2])):
        sequence.step([1] * 256, None)
    await workers.add_capacity(1)
    enqueue_for(queue, "returning", (1, 2))

    await workers.add_capacity(3)

    assert workers.started[4:] == ["returning-1", "steady-3", "returning-2"]


async def test_a_request_that_left_costs_its_tenant_not_even_its_turn() -> None:
    """Of equals, the first that came is the first that starts."""
    workers = CapacityWorkers()
    queue = AdmissionQueue(workers, AdmissionSettings())
    enqueue(queue, "waits", Placement(tenant="other"))
    leaver, _ = enqueue(queue, "leaver", Placement(tenant="first"))
    leaver.abort()
    for tenant in ("first", "second"):
        enqueue(queue, tenant, Placement(tenant=tenant))

    await workers.add_capacity(3)

    assert workers.started == ["waits", "first", "second"]


async def test_an_aborted_request_leaves_the_queue() -> None:
    """It never reaches a worker, however often it is aborted."""
    workers = CapacityWorkers()
    queue = AdmissionQueue(workers, AdmissionSettings(max_queue=1))
    leaver, listener = enqueue(queue, "leaver")

    leaver.abort()
    leaver.abort()
    enqueue(queue, "stayer")
    await workers.add_capacity(2)

    assert workers.started == ["stayer"]
    assert not listener.ended.is_set()


async def test_many_aborted_requests_free_their_memory() -> None:
    """Requests removed from the middle of the queue are not kept until their turn."""
    queue = AdmissionQueue(CapacityWorkers(), AdmissionSettings(max_queue=10_000))
    first, _ = enqueue(queue, "first")
    for leaver in [enqueue(queue, "leaver")[0] for _ in range(1000)]:
        leaver.abort()

    (fair_queue,) = queue._queues.values()
    assert list(fair_queue) == [first]
    (group,) = fair_queue._groups.values()
    assert len(group._classes) == 1
    first.abort()
    assert not fair_queue._groups


async def test_tenants_that_left_are_forgotten() -> None:
    """Addresses are tenants too: while one waits, any number of others may come and go."""
    queue = AdmissionQueue(CapacityWorkers(), AdmissionSettings(max_queue=10_000))
    enqueue_for(queue, "stays", [1])
    for number in range(3000):
        enqueue_for(queue, f"leaver-{number}", [1])[0].abort()

    (fair_queue,) = queue._queues.values()
    (shares,) = fair_queue.shares.values()
    assert "stays" in shares._tenants
    assert len(shares._tenants) < 1100


async def test_tenants_that_never_waited_are_forgotten() -> None:
    """Where workers have room, nobody is ahead of anybody."""
    queue = AdmissionQueue(CapacityWorkers(free=3000), AdmissionSettings())
    for number in range(3000):
        handle, _ = enqueue(queue, "leaver", Placement(tenant=f"leaver-{number}"))
        handle.abort()

    (fair_queue,) = queue._queues.values()
    (shares,) = fair_queue.shares.values()
    assert len(shares._tenants) < 1100


async def test_priorities_that_nobody_uses_are_forgotten() -> None:
    """Clients choose them: any number may come and go."""
    queue = AdmissionQueue(CapacityWorkers(free=3000), AdmissionSettings(max_queue=10_000))
    for number in range(1000):
        handle, _ = enqueue(queue, "leaver", Placement(tenant="any"), priority=number)
        handle.abort()

    (fair_queue,) = queue._queues.values()
    assert len(fair_queue.shares) < 50


async def test_what_runs_counts_though_it_did_not_wait() -> None:
    """Whoever comes to workers that another fills is next, and stays so until it has as much."""
    workers = CapacityWorkers(free=3)
    queue = AdmissionQueue(workers, AdmissionSettings(max_queue=100))
    enqueue_for(queue, "first", range(5))
    enqueue_for(queue, "late", range(5))

    await workers.add_capacity(6)

    # Three sequences of the first run, each of which counts 256 in advance.
    assert workers.started[3:] == [*[f"late-{number}" for number in range(3)], "first-3", "late-3", "first-4"]


async def test_what_generates_counts_though_it_did_not_wait() -> None:
    """From when another waits."""
    workers = CapacityWorkers(free=1)
    queue = AdmissionQueue(workers, AdmissionSettings(max_queue=100))
    enqueue_for(queue, "first", range(3))
    enqueue_for(queue, "late", range(4))

    workers.parts[0].listeners[0].step([1] * 1000, None)
    await workers.add_capacity(4)

    assert workers.started[1:] == ["late-0", "late-1", "late-2", "late-3"]


async def test_what_has_ended_before_others_waited_does_not_count() -> None:
    """A tenant takes nothing from anybody as long as nobody waits."""
    workers = CapacityWorkers(free=2)
    queue = AdmissionQueue(workers, AdmissionSettings(max_queue=100))
    enqueue_for(queue, "first", range(2), tokens=5000)
    for part in list(workers.parts):
        end_part(part, 1000)
    enqueue_for(queue, "first", range(2, 4))
    enqueue_for(queue, "late", range(2))

    await workers.add_capacity(3)

    assert workers.started[2:] == ["first-2", "late-0", "first-3"]


class OtherRevisionWorkers(CapacityWorkers):
    """Workers that may begin replies of another revision, but continue none."""

    def try_submit(
        self, model: str, submission: Submission, listeners: Sequence[SlotListener], placement: Placement = NEW
    ) -> QueuedPart | None:
        """Take what has not begun."""
        return None if placement.begun else super().try_submit(model, submission, listeners, placement)


async def test_a_new_request_does_not_wait_behind_a_reply_that_only_its_revision_may_continue() -> None:
    """Without tokens it may start at any revision with the same tokenizer; the other waits for a worker to return."""
    workers = OtherRevisionWorkers()
    queue = AdmissionQueue(workers, AdmissionSettings())
    revision = ModelRevision(weights="old")
    enqueue(queue, "begun", replace(RESUMED, revision=revision, begun=True))
    enqueue(queue, "new", Placement(revision=revision))

    await workers.add_capacity()

    assert workers.started == ["new"]


async def test_what_was_taken_back_goes_before_new_requests_of_its_tenant_alone() -> None:
    """It has begun; it counts no prompt, and takes no turn of others."""
    workers = CapacityWorkers(free=1)
    queue = AdmissionQueue(workers, AdmissionSettings(max_queue=3))
    enqueue_for(queue, "greedy", range(2))
    enqueue_for(queue, "small", range(2))
    for number in (2, 3):
        enqueue(queue, f"greedy-{number}", Placement(tenant="greedy", preempted=True), tokens=1000)

    await workers.add_capacity(5)

    assert workers.started == ["greedy-0", "small-0", "greedy-3", "small-1", "greedy-2", "greedy-1"]


async def test_what_was_taken_back_goes_before_requests_that_other_workers_may_take_too() -> None:
    """Of one tenant, whatever workers they wait for."""
    workers = CapacityWorkers()
    queue = AdmissionQueue(workers, AdmissionSettings())
    enqueue(queue, "new", Placement(tenant="greedy", revision=OLD))
    enqueue(queue, "back", Placement(tenant="greedy", preempted=True))

    await workers.add_capacity()

    assert workers.started == ["back"]


async def test_what_was_taken_back_waits_as_long_as_it_takes() -> None:
    """As long as a worker can take it: its client has a part of the reply. Others give up."""
    workers = CapacityWorkers()
    queue = AdmissionQueue(workers, AdmissionSettings(queue_timeout_s=0.01))
    back = Placement(tenant="greedy", preempted=True)
    _, kept = enqueue(queue, "kept", back)
    _, new = enqueue(queue, "new", Placement(tenant="greedy"))
    _, lost = enqueue(queue, "lost", back, adapter_id=7)

    await new.ended.wait()
    await lost.ended.wait()
    await workers.add_capacity()

    assert (workers.started, kept.ended.is_set()) == (["kept"], False)


async def test_the_tenant_whose_turn_it_is_may_be_late() -> None:
    """Then it says how much it waits for, where, and before whom it would go."""
    workers = CapacityWorkers(free=2)
    queue = AdmissionQueue(workers, AdmissionSettings(max_queue=100))
    enqueue_for(queue, "greedy", range(3))
    enqueue_for(queue, "small", range(4))
    assert not queue.late(60)

    (late,) = queue.late(-1)

    assert (late.placement.tenant, late.priority, late.sequences, late.workers) == ("small", 0, 4, [workers.worker])
    assert [late.is_behind(tenant) for tenant in ("greedy", "nobody")] == [True, False]
