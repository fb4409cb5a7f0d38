"""The admission queue: queueing, order and rejection, without real workers.

One file, since all tests are of one class over the same fake workers.
"""

import asyncio
from collections.abc import Sequence

import pytest

from tests.coordinator.fleet.admission.fakes import MODEL, RESUMED, CapacityWorkers, QueuedPart, enqueue
from tests.workers import Listener, submission
from tokenwire.coordinator.fleet.admission.queue import AdmissionQueue
from tokenwire.coordinator.fleet.admission.queued_request import QueuedRequest
from tokenwire.coordinator.fleet.admission.settings import AdmissionSettings
from tokenwire.coordinator.fleet.request_handle import NEW, Placement
from tokenwire.coordinator.fleet.slots import SlotListener
from tokenwire.coordinator.fleet.submission import Submission
from tokenwire.errors import EngineFailed, Overloaded, TokenwireError, Unavailable
from tokenwire.v1 import inference_pb2 as pb


def waiting_requests(queue: AdmissionQueue) -> int:
    """Return the number of queued requests of all models."""
    return sum(requests for requests, _ in queue.lengths().values())


async def test_with_capacity_requests_are_not_queued() -> None:
    """A request is placed at once to a worker with free capacity."""
    workers = CapacityWorkers(free=1)
    queue = AdmissionQueue(workers, AdmissionSettings())

    submission, _ = enqueue(queue, "a")

    assert workers.started == ["a"]
    assert submission.explain() == "here"
    assert waiting_requests(queue) == 0


async def test_capacity_without_a_callback_is_found() -> None:
    """There is no event when another coordinator's requests end: the queue polls the capacity."""
    workers = CapacityWorkers()
    queue = AdmissionQueue(workers, AdmissionSettings())
    queued, _ = enqueue(queue, "a")
    assert queued.explain() == ""

    workers.capacities[0] = 1

    async with asyncio.timeout(5):
        while not workers.started:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert queued.explain() == "here"


async def test_an_empty_queue_looks_for_no_capacity() -> None:
    """Whether its requests were placed or aborted."""
    workers = CapacityWorkers()
    queue = AdmissionQueue(workers, AdmissionSettings())
    enqueue(queue, "placed")
    aborted, _ = enqueue(queue, "aborted")

    aborted.abort()
    await workers.add_capacity()

    assert (workers.started, queue._check) == (["placed"], None)


async def test_a_missing_adapter_blocks_no_other_request() -> None:
    """Requests for an adapter that no worker has are queued separately."""
    workers = CapacityWorkers(free=1)
    queue = AdmissionQueue(workers, AdmissionSettings())
    enqueue(queue, "adapted", adapter_id=7)

    enqueue(queue, "plain")
    assert workers.started == ["plain"]
    await workers.add_capacity(adapter_id=7)

    assert workers.started == ["plain", "adapted"]


async def test_a_tenant_with_many_prompts_at_the_workers_blocks_no_other() -> None:
    """Others are looked at as they come, and it goes on once some are computed."""
    workers = CapacityWorkers(free=9)
    workers.full_of_prompts = {"greedy"}
    queue = AdmissionQueue(workers, AdmissionSettings())
    greedy, small = (Placement(tenant=name, shared=True) for name in ("greedy", "small"))
    enqueue(queue, "first", greedy)
    enqueue(queue, "second", greedy)

    enqueue(queue, "small", small)
    await asyncio.sleep(0)
    assert workers.started == ["small"]
    workers.full_of_prompts.clear()
    await workers.add_capacity()

    assert workers.started == ["small", "first", "second"]


def parts(workers: CapacityWorkers) -> list[tuple[str, int, int]]:
    """Return what the workers got: the request, the position of the first sequence and the number of sequences."""
    return [(part.request_id, part.submission.start, len(part.listeners)) for part in workers.parts]


async def test_a_request_of_many_choices_starts_in_parts() -> None:
    """As there is room for them: at once, and from the queue. Those behind it wait for the rest."""
    workers = CapacityWorkers(free=2)
    queue = AdmissionQueue(workers, AdmissionSettings(max_queue=2000))
    handle, _ = enqueue(queue, "huge", n=1000)
    enqueue(queue, "small")
    assert parts(workers) == [("huge", 0, 2)]
    assert queue.lengths() == {MODEL: (2, 999)}

    await workers.add_capacity(3)
    assert parts(workers)[1:] == [("huge", 2, 3)]
    assert handle.explain() == "here, here"
    await workers.add_capacity(996)

    assert parts(workers)[2:] == [("huge", 5, 995), ("small", 0, 1)]
    assert not queue.lengths()


async def test_a_request_of_many_choices_does_not_keep_other_tenants_waiting() -> None:
    """Each part counts as its tenant's work when it starts, and what has begun takes nobody's place in the queue."""
    workers = CapacityWorkers(free=1)
    queue = AdmissionQueue(workers, AdmissionSettings(max_queue=4))
    enqueue(queue, "huge", Placement(tenant="greedy"), n=1000)
    for number in range(2):
        queue.check_open(MODEL, 0, Placement(tenant="small"))
        enqueue(queue, f"small-{number}", Placement(tenant="small"))
    with pytest.raises(Overloaded):
        queue.check_open(MODEL, 0, Placement(tenant="greedy"))

    for _ in range(4):
        await workers.add_capacity()

    assert [name for name, *_ in parts(workers)] == ["huge", "small-0", "huge", "small-1", "huge"]


async def test_aborting_a_request_aborts_its_parts_and_the_rest() -> None:
    """Nothing of it starts afterwards."""
    workers = CapacityWorkers(free=1)
    queue = AdmissionQueue(workers, AdmissionSettings())
    handle, _ = enqueue(queue, "a", n=4)
    await workers.add_capacity(2)

    handle.abort()
    handle.abort()
    await workers.add_capacity(2)

    assert [part.aborted for part in workers.parts] == [True, True]
    assert not queue.lengths()


async def test_parts_of_a_request_are_aborted_one_by_one() -> None:
    """What one worker has, or what is queued; the others run on."""
    workers = CapacityWorkers(free=1)
    queue = AdmissionQueue(workers, AdmissionSettings())
    handle = queue.submit(MODEL, submission(), [Listener() for _ in range(4)])
    await workers.add_capacity(2)

    handle.abort_on(workers.parts[1].session)
    assert [part.aborted for part in workers.parts] == [False, True]
    assert queue.lengths() == {MODEL: (1, 1)}
    handle.abort_on(None)

    assert [part.aborted for part in workers.parts] == [False, True]
    assert not queue.lengths()


async def test_an_abort_by_id_ends_what_is_queued_of_a_request() -> None:
    """Workers end what they have of it, by its id too."""
    workers = CapacityWorkers(free=1)
    queue = AdmissionQueue(workers, AdmissionSettings())
    listeners = [Listener() for _ in range(3)]
    queue.submit(MODEL, submission(request_id="a"), listeners)

    assert queue.abort(["a"]) == 2

    assert [listener.ended.is_set() for listener in listeners] == [False, True, True]
    assert not workers.parts[0].aborted


async def test_the_time_in_the_queue_counts_anew_from_each_part() -> None:
    """A client that gets replies is not told that there is no capacity, until there is none for that time."""
    workers = CapacityWorkers()
    queue = AdmissionQueue(workers, AdmissionSettings(queue_timeout_s=0.2))
    listeners = [Listener() for _ in range(3)]
    handle = queue.submit(MODEL, submission(), listeners)
    assert isinstance(handle, QueuedRequest)
    assert handle.timer is not None
    first = handle.timer
    await workers.add_capacity()

    assert first.cancelled()
    assert handle.timer.when() > first.when()
    await listeners[2].ended.wait()

    assert [listener.ended.is_set() for listener in listeners] == [False, True, True]
    assert isinstance(listeners[1].error, Unavailable)


async def test_a_request_that_was_begun_is_never_rejected() -> None:
    """Nor for another tenant's, though it takes all places."""
    workers = CapacityWorkers(free=1)
    queue = AdmissionQueue(workers, AdmissionSettings(max_queue=0))
    _, listener = enqueue(queue, "begun", n=3)

    with pytest.raises(Overloaded):
        enqueue(queue, "late", Placement(tenant="other"))

    assert not listener.ended.is_set()
    assert queue.lengths() == {MODEL: (1, 2)}


async def test_a_request_that_cannot_be_sent_blocks_no_other(caplog: pytest.LogCaptureFixture) -> None:
    """If placing it fails, its listeners get the error and the next one is placed."""

    class Broken(CapacityWorkers):
        def try_submit(
            self, model: str, submission: Submission, listeners: Sequence[SlotListener], placement: Placement = NEW
        ) -> QueuedPart | None:
            if submission.request_id == "broken" and self.capacities[0]:
                raise ValueError("broken")
            return super().try_submit(model, submission, listeners, placement)

    workers = Broken()
    queue = AdmissionQueue(workers, AdmissionSettings())
    _, listener = enqueue(queue, "broken")
    enqueue(queue, "whole")

    await workers.add_capacity()

    assert isinstance(listener.error, EngineFailed)
    assert workers.started == ["whole"]
    assert "request broken for m was not sent" in caplog.text


class Helpless(Listener):
    """Raises when it is ended."""

    def step(self, token_ids: list[int], finish: pb.Finish | None) -> bool:
        """Raise."""
        raise ValueError("cannot end")

    def fail(self, error: TokenwireError) -> None:
        """Raise."""
        super().fail(error)
        raise ValueError("cannot fail")


def queue_in_pairs(queue: AdmissionQueue) -> tuple[Listener, list[Listener]]:
    """Submit two requests; return the first listener, which raises when it is ended, and all others."""
    helpless, others = Helpless(), [Listener(), Listener()]
    queue.submit(MODEL, submission(request_id="a"), [helpless, others[0]])
    queue.submit(MODEL, submission(request_id="b"), [others[1]])
    return helpless, others


async def test_a_listener_that_raises_when_it_is_ended_affects_no_other() -> None:
    """The others are ended: on an abort, on a timeout, on a failed dispatch."""
    queue = AdmissionQueue(CapacityWorkers(), AdmissionSettings())
    helpless, others = queue_in_pairs(queue)
    assert queue.abort(None) == 3
    assert isinstance(helpless.error, EngineFailed)
    assert all(listener.finish is not None for listener in others)

    queue = AdmissionQueue(CapacityWorkers(), AdmissionSettings(queue_timeout_s=0.02))
    _, others = queue_in_pairs(queue)
    for listener in others:
        await listener.ended.wait()
        assert isinstance(listener.error, Unavailable)

    workers = CapacityWorkers()
    queue = AdmissionQueue(workers, AdmissionSettings())
    _, others = queue_in_pairs(queue)
    workers.absent = "gone"
    await workers.add_capacity()
    assert all(isinstance(listener.error, Unavailable) for listener in others)


async def test_a_failing_queue_affects_no_other_model() -> None:
    """Whatever the error of one model's workers."""

    class Broken(CapacityWorkers):
        broken = ""

        def try_submit(
            self, model: str, submission: Submission, listeners: Sequence[SlotListener], placement: Placement = NEW
        ) -> QueuedPart | None:
            if model == self.broken:
                raise ValueError("broken")
            return super().try_submit(model, submission, listeners, placement)

    workers = Broken()
    queue = AdmissionQueue(workers, AdmissionSettings())
    enqueue(queue, "a")
    queue.submit("other", submission(request_id="b"), [Listener()])
    workers.broken = MODEL

    await workers.add_capacity()

    assert workers.started == ["b"]


async def test_queued_requests_are_aborted_by_their_ids() -> None:
    """Their listeners get the same finish as from a worker; others stay queued."""
    workers = CapacityWorkers()
    queue = AdmissionQueue(workers, AdmissionSettings())
    listeners = {name: enqueue(queue, name)[1] for name in "abc"}

    assert queue.abort(["b", "x"]) == 1
    assert listeners["b"].finish == pb.Finish(reason=pb.FINISH_REASON_ABORT)
    assert queue.lengths() == {MODEL: (2, 2)}
    assert queue.abort(None) == 2
    await workers.add_capacity(3)

    assert workers.started == []


async def test_queueing_times_out() -> None:
    """The error is a 503, with the reason if there is no worker."""
    workers = CapacityWorkers()
    queue = AdmissionQueue(workers, AdmissionSettings(queue_timeout_s=0.02))
    _, listener = enqueue(queue, "a")
    await listener.ended.wait()
    assert isinstance(listener.error, Unavailable)
    assert "had capacity" in listener.error.message

    workers.absent = "all are dead"
    resumed, listener = enqueue(queue, "b", RESUMED)
    await listener.ended.wait()
    resumed.abort()

    assert listener.error is not None
    assert listener.error.message == "all are dead"
    assert listener.error.retry_after_s
    assert waiting_requests(queue) == 0

    _, listener = enqueue(queue, "c", adapter_id=7)
    await listener.ended.wait()
    assert listener.error is not None
    assert listener.error.message == "no worker has adapter 7"
    assert queue.rejections == {(MODEL, "timeout"): 3}


async def test_a_placed_request_does_not_time_out() -> None:
    """However long it runs."""
    workers = CapacityWorkers()
    queue = AdmissionQueue(workers, AdmissionSettings(queue_timeout_s=0.1))
    _, placed = enqueue(queue, "placed")
    _, later = enqueue(queue, "later")
    await workers.add_capacity()

    await later.ended.wait()

    assert not placed.ended.is_set()
    assert queue.rejections == {(MODEL, "timeout"): 1}


async def test_a_full_queue_rejects() -> None:
    """429 with a time computed from the queue's throughput, but never for resumed requests."""
    workers = CapacityWorkers(free=3)
    queue = AdmissionQueue(workers, AdmissionSettings(max_queue=9))
    for number in range(12):
        enqueue(queue, f"{number}")

    for _ in range(2):
        with pytest.raises(Overloaded, match=r"9 of at most 9 sequences \(--max-queue\): no room for 1 more") as caught:
            enqueue(queue, "rejected")
    enqueue(queue, "resumed", RESUMED)
    enqueue(queue, "joined", Placement(joins=True))

    # Three started within this second, so ten take four.
    assert caught.value.retry_after_s == 4
    assert queue.rejections == {(MODEL, "full"): 2}
    assert waiting_requests(queue) == 11


async def test_a_full_queue_lets_a_tenant_in_that_is_below_its_share() -> None:
    """The newest request of the one that takes most is rejected for it, with the time that its own queue takes."""
    workers = CapacityWorkers(free=3)
    queue = AdmissionQueue(workers, AdmissionSettings(max_queue=6))
    greedy, small = Placement(tenant="greedy"), Placement(tenant="small")
    listeners = [enqueue(queue, f"greedy-{number}", greedy)[1] for number in range(9)]

    queue.check_open(MODEL, 0, small)
    enqueue(queue, "small", small)
    with pytest.raises(Overloaded):
        queue.check_open(MODEL, 0, greedy)

    assert [listener.ended.is_set() for listener in listeners] == [False] * 8 + [True]
    error = listeners[-1].error
    assert isinstance(error, Overloaded)
    assert error.retry_after_s == 3  # six of its own and one of the other, of which three start in a second
    assert queue.lengths() == {MODEL: (6, 6)}
    assert queue.rejections == {(MODEL, "full"): 2}
    await workers.add_capacity(2)
    assert workers.started[3:] == ["small", "greedy-3"]


async def test_a_tenant_at_its_share_is_rejected() -> None:
    """Places do not change hands among those that have as many."""
    queue = AdmissionQueue(CapacityWorkers(), AdmissionSettings(max_queue=4))
    for number in range(4):
        enqueue(queue, f"one-{number}", Placement(tenant="one"))
    for number in range(2):
        enqueue(queue, f"other-{number}", Placement(tenant="other"))

    for tenant in ("one", "other"):
        with pytest.raises(Overloaded):
            enqueue(queue, "rejected", Placement(tenant=tenant))
    assert queue.lengths() == {MODEL: (4, 4)}


async def test_without_workers_a_request_rejected_for_another_tenants_is_unavailable() -> None:
    """As one is that comes late."""
    queue = AdmissionQueue(CapacityWorkers(absence="all are dead"), AdmissionSettings(max_queue=2))
    _, newest = [enqueue(queue, f"{number}", Placement(tenant="one"))[1] for number in range(2)]
    enqueue(queue, "other", Placement(tenant="other"))

    assert isinstance(newest.error, Unavailable)
    assert newest.error.message == "all are dead"


async def test_a_resumed_request_takes_nobodys_place() -> None:
    """It is queued beyond the bound, as prompts are that belong to an admitted request."""
    queue = AdmissionQueue(CapacityWorkers(), AdmissionSettings(max_queue=2))
    for number in range(2):
        enqueue(queue, f"{number}", Placement(tenant="one"))

    enqueue(queue, "resumed", Placement(tenant="other", resumed=True))
    enqueue(queue, "joined", Placement(tenant="other", joins=True))

    assert queue.lengths() == {MODEL: (4, 4)}


async def test_sequences_that_were_sent_take_no_memory_of_the_queue() -> None:
    """What is left of their request does."""
    workers = CapacityWorkers()
    queue = AdmissionQueue(workers, AdmissionSettings(max_queue=1000, max_queue_bytes=1000))
    large = Placement(sequence_bytes=100)
    enqueue(queue, "parts", large, n=10)
    await workers.add_capacity(4)

    with pytest.raises(Overloaded, match=r"MiB of at most .* MiB \(--max-queue-mb\): no room for .* MiB\. Try"):
        enqueue(queue, "too large", large, n=5)
    enqueue(queue, "fits", large, n=4)


async def test_memory_is_shared_by_tenants_across_models() -> None:
    """The newest request of the one that takes most is rejected, whatever its model."""
    queue = AdmissionQueue(CapacityWorkers(), AdmissionSettings(max_queue=1000, max_queue_bytes=1_000_000))
    listeners = [Listener(), Listener()]
    for listener in listeners:
        placement = Placement(tenant="greedy", sequence_bytes=400_000)
        queue.submit("other", submission(request_id="large"), [listener], placement)

    enqueue(queue, "small", Placement(tenant="small", sequence_bytes=400_000))

    assert [listener.ended.is_set() for listener in listeners] == [False, True]
    assert queue.lengths() == {"other": (1, 1), MODEL: (1, 1)}
    assert queue.rejections == {("other", "full"): 1}


async def test_a_rejection_can_be_checked_in_advance() -> None:
    """So no work is done for a request that finds the queue full."""
    workers = CapacityWorkers()
    queue = AdmissionQueue(workers, AdmissionSettings(max_queue=2))
    queue.check_open(MODEL, 0)
    enqueue(queue, "a")
    queue.check_open(MODEL, 0)
    enqueue(queue, "b")

    with pytest.raises(Overloaded):
        queue.check_open(MODEL, 0)
    queue.check_open("another", 0)


async def test_the_queue_is_by_default_as_long_as_the_workers_capacity() -> None:
    """As many sequences may be queued as run."""
    queue = AdmissionQueue(CapacityWorkers(), AdmissionSettings())
    for number in range(10):
        enqueue(queue, f"{number}", n=2)

    with pytest.raises(Overloaded):
        enqueue(queue, "rejected")


async def test_without_a_worker_a_full_queue_is_unavailable() -> None:
    """503 and not 429: the client's rate is not the cause."""
    workers = CapacityWorkers(absence="all are dead")
    queue = AdmissionQueue(workers, AdmissionSettings(max_queue=1))
    enqueue(queue, "waits")

    with pytest.raises(Unavailable, match="all are dead") as caught:
        enqueue(queue, "rejected")
    assert caught.value.retry_after_s == 1
    assert queue.rejections == {(MODEL, "no_worker"): 1}


async def test_a_queue_may_be_disabled() -> None:
    """With a length of 0 requests without free capacity are rejected at once."""
    queue = AdmissionQueue(CapacityWorkers(free=1), AdmissionSettings(max_queue=0))
    enqueue(queue, "a")

    with pytest.raises(Overloaded, match="busy"):
        enqueue(queue, "b")


async def test_the_memory_of_the_queue_is_bounded() -> None:
    """Long prompts fill the queue before its length does, and many choices."""
    queue = AdmissionQueue(CapacityWorkers(), AdmissionSettings(max_queue=1000, max_queue_bytes=1_000_000))
    large = Placement(sequence_bytes=100_000)
    leaver, *_ = [enqueue(queue, f"{number}", large, n=2)[0] for number in range(5)]

    with pytest.raises(Overloaded):
        enqueue(queue, "rejected", Placement(sequence_bytes=1))
    leaver.abort()
    with pytest.raises(Overloaded):
        enqueue(queue, "rejected", large, n=3)
    enqueue(queue, "another", large, n=2)
