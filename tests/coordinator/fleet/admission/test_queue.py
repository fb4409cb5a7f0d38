"""The admission queue: queueing, order and rejection, without real workers."""

import asyncio
from collections.abc import Callable, Sequence

import pytest

from tests.workers import Listener, submission
from tokenwire.coordinator.fleet.admission.queue import AdmissionQueue
from tokenwire.coordinator.fleet.admission.settings import AdmissionSettings
from tokenwire.coordinator.fleet.request_handle import NEW, Placement, RequestHandle
from tokenwire.coordinator.fleet.slots import SlotListener
from tokenwire.errors import EngineFailed, Overloaded, TokenwireError, Unavailable
from tokenwire.v1 import inference_pb2 as pb

MODEL = "m"
RESUMED = Placement(resumed=True)


class Part:
    """A request on a worker."""

    def __init__(self, submit: pb.Submit) -> None:
        self.request_id = submit.request_id
        self.aborted = False

    def abort(self) -> None:
        """Record the abort."""
        self.aborted = True

    def explain(self) -> str:
        """Return where it is."""
        return "here"


class Workers:
    """Workers with a given capacity for each adapter."""

    def __init__(self, free: int = 0, absence: str = "") -> None:
        self.capacities = {0: free}
        self.absent = absence
        self.parts: list[Part] = []
        self._changed: Callable[[], None] = lambda: None

    @property
    def started(self) -> list[str]:
        """Ids of requests, in order of arrival."""
        return [part.request_id for part in self.parts]

    def subscribe(self, changed: Callable[[], None]) -> None:
        """Register the callback."""
        self._changed = changed

    def capacity(self, model: str) -> int:
        """Return how many sequences run at a time."""
        return 20

    def unavailable_reason(self, model: str, adapter_id: int = 0) -> str:
        """Return why there is no worker."""
        return self.absent

    def try_submit(
        self, model: str, submit: pb.Submit, listeners: Sequence[SlotListener], placement: Placement = NEW
    ) -> Part | None:
        """Take a request if there is capacity."""
        if self.capacities.get(submit.lora.id, 0) <= 0:
            return None
        if self.absent:
            raise Unavailable(self.absent)
        self.capacities[submit.lora.id] -= len(listeners)
        self.parts.append(Part(submit))
        return self.parts[-1]

    async def add_capacity(self, sequences: int = 1, adapter_id: int = 0) -> None:
        """Add capacity, call back, and let the queue dispatch."""
        self.capacities[adapter_id] = self.capacities.get(adapter_id, 0) + sequences
        self._changed()
        await asyncio.sleep(0)
        await asyncio.sleep(0)


def send(
    queue: AdmissionQueue,
    name: str,
    placement: Placement = NEW,
    n: int = 1,
    priority: int = 0,
    adapter_id: int = 0,
    tokens: int = 10,
) -> tuple[RequestHandle, Listener]:
    """Submit a request."""
    submit = submission(request_id=name)
    submit.priority = priority
    submit.prompt_token_ids[:] = [1] * tokens
    if adapter_id:
        submit.lora.id = adapter_id
    listeners = [Listener() for _ in range(n)]
    return queue.submit(MODEL, submit, listeners, placement), listeners[0]


async def test_with_capacity_requests_are_not_queued() -> None:
    """A request is dispatched at once to a worker with free capacity."""
    workers = Workers(free=1)
    queue = AdmissionQueue(workers, AdmissionSettings())

    submission, _ = send(queue, "a")

    assert workers.started == ["a"]
    assert submission.explain() == "here"
    assert queue.waiting_requests == 0


async def test_the_queue_is_dispatched_in_order() -> None:
    """The first one queued is the first dispatched, one for each free sequence, and may be aborted afterwards."""
    workers = Workers()
    queue = AdmissionQueue(workers, AdmissionSettings())
    waiting = [send(queue, name)[0] for name in "abc"]
    assert waiting[0].explain() == ""

    await workers.add_capacity()
    assert workers.started == ["a"]
    await workers.add_capacity(2)

    assert workers.started == ["a", "b", "c"]
    waiting[1].abort()
    assert [part.aborted for part in workers.parts] == [False, True, False]


async def test_capacity_without_a_callback_is_found() -> None:
    """There is no event when another coordinator's requests end: the queue polls the capacity."""
    workers = Workers()
    queue = AdmissionQueue(workers, AdmissionSettings())
    send(queue, "a")

    workers.capacities[0] = 1

    async with asyncio.timeout(5):
        while not workers.started:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_a_new_request_does_not_overtake_queued_ones() -> None:
    """Capacity that was just freed belongs to the head of the queue."""
    workers = Workers()
    queue = AdmissionQueue(workers, AdmissionSettings())
    send(queue, "first")
    workers.capacities[0] = 1

    send(queue, "second")
    await workers.add_capacity(0)

    assert workers.started == ["first"]


async def test_resumed_requests_go_first_then_by_priority() -> None:
    """A reply that has started continues before others start; a lower priority value goes first."""
    workers = Workers()
    queue = AdmissionQueue(workers, AdmissionSettings())
    send(queue, "late", priority=5)
    send(queue, "usual")
    send(queue, "early", priority=-5)
    send(queue, "resumed", RESUMED, priority=9)

    await workers.add_capacity(4)

    assert workers.started == ["resumed", "early", "usual", "late"]


async def test_tenants_get_equal_shares() -> None:
    """Many requests or long prompts of one do not delay the others."""
    workers = Workers()
    queue = AdmissionQueue(workers, AdmissionSettings())
    greedy, modest = Placement(tenant="greedy"), Placement(tenant="modest")
    for number in range(4):
        send(queue, f"greedy-{number}", greedy, tokens=1000)
    for number in range(3):
        send(queue, f"modest-{number}", modest, tokens=100)

    await workers.add_capacity(7)

    # A request of the first tenant costs as much as three and a half of the other's.
    order = ["greedy-0", "modest-0", "modest-1", "modest-2", "greedy-1", "greedy-2", "greedy-3"]
    assert workers.started == order


async def test_a_missing_adapter_blocks_no_other_request() -> None:
    """Requests for an adapter that no worker has are queued separately."""
    workers = Workers(free=1)
    queue = AdmissionQueue(workers, AdmissionSettings())
    send(queue, "adapted", adapter_id=7)

    send(queue, "plain")
    assert workers.started == ["plain"]
    await workers.add_capacity(adapter_id=7)

    assert workers.started == ["plain", "adapted"]


async def test_a_request_of_many_choices_starts_with_any_free_capacity() -> None:
    """One of more sequences than any worker runs does not wait for ever."""
    workers = Workers()
    queue = AdmissionQueue(workers, AdmissionSettings(max_queue=2000))
    send(queue, "huge", n=1000)
    send(queue, "small")

    await workers.add_capacity()
    assert workers.started == ["huge"]
    await workers.add_capacity(1000)

    assert workers.started == ["huge", "small"]


async def test_a_request_that_cannot_be_sent_blocks_no_other() -> None:
    """If dispatching it fails, its listeners get the error and the next one is dispatched."""

    class Broken(Workers):
        def try_submit(
            self, model: str, submit: pb.Submit, listeners: Sequence[SlotListener], placement: Placement = NEW
        ) -> Part | None:
            if submit.request_id == "broken" and self.capacities[0]:
                raise ValueError("broken")
            return super().try_submit(model, submit, listeners, placement)

    workers = Broken()
    queue = AdmissionQueue(workers, AdmissionSettings())
    _, listener = send(queue, "broken")
    send(queue, "whole")

    await workers.add_capacity()

    assert isinstance(listener.error, EngineFailed)
    assert workers.started == ["whole"]


class Helpless(Listener):
    """Raises when it is ended."""

    def step(self, token_ids: list[int], finish: pb.Finish | None) -> bool:
        """Raise."""
        raise ValueError("cannot end")

    def fail(self, error: TokenwireError) -> None:
        """Raise."""
        super().fail(error)
        raise ValueError("cannot fail")


def ask_in_pairs(queue: AdmissionQueue) -> tuple[Listener, list[Listener]]:
    """Submit two requests; return the first listener, which raises when it is ended, and all others."""
    helpless, others = Helpless(), [Listener(), Listener()]
    queue.submit(MODEL, submission(request_id="a"), [helpless, others[0]])
    queue.submit(MODEL, submission(request_id="b"), [others[1]])
    return helpless, others


async def test_a_listener_that_raises_when_it_is_ended_affects_no_other() -> None:
    """The others are ended: on an abort, on a timeout, on a failed dispatch."""
    queue = AdmissionQueue(Workers(), AdmissionSettings())
    helpless, others = ask_in_pairs(queue)
    assert queue.abort(None) == 3
    assert isinstance(helpless.error, EngineFailed)
    assert all(listener.finish is not None for listener in others)

    queue = AdmissionQueue(Workers(), AdmissionSettings(queue_timeout_s=0.02))
    _, others = ask_in_pairs(queue)
    for listener in others:
        await listener.ended.wait()
        assert isinstance(listener.error, Unavailable)

    workers = Workers()
    queue = AdmissionQueue(workers, AdmissionSettings())
    _, others = ask_in_pairs(queue)
    workers.absent = "gone"
    await workers.add_capacity()
    assert all(isinstance(listener.error, Unavailable) for listener in others)


async def test_a_failing_queue_affects_no_other_model() -> None:
    """Whatever the error of one model's workers."""

    class Broken(Workers):
        broken = ""

        def try_submit(
            self, model: str, submit: pb.Submit, listeners: Sequence[SlotListener], placement: Placement = NEW
        ) -> Part | None:
            if model == self.broken:
                raise ValueError("broken")
            return super().try_submit(model, submit, listeners, placement)

    workers = Broken()
    queue = AdmissionQueue(workers, AdmissionSettings())
    send(queue, "a")
    queue.submit("other", submission(request_id="b"), [Listener()])
    workers.broken = MODEL

    await workers.add_capacity()

    assert workers.started == ["b"]


async def test_an_aborted_request_leaves_the_queue() -> None:
    """It never reaches a worker, however often it is aborted."""
    workers = Workers()
    queue = AdmissionQueue(workers, AdmissionSettings(max_queue=1))
    leaver, listener = send(queue, "leaver")

    leaver.abort()
    leaver.abort()
    send(queue, "stayer")
    await workers.add_capacity(2)

    assert workers.started == ["stayer"]
    assert not listener.ended.is_set()


async def test_queued_requests_are_aborted_by_their_ids() -> None:
    """Their listeners get the same finish as from a worker; others stay queued."""
    workers = Workers()
    queue = AdmissionQueue(workers, AdmissionSettings())
    listeners = {name: send(queue, name)[1] for name in "abc"}

    assert queue.abort(["b", "x"]) == 1
    assert listeners["b"].finish == pb.Finish(reason=pb.FINISH_REASON_ABORT)
    assert queue.abort(None) == 2
    await workers.add_capacity(3)

    assert workers.started == []


async def test_many_aborted_requests_free_their_memory() -> None:
    """Requests removed from the middle of the queue are not kept until their turn."""
    queue = AdmissionQueue(Workers(), AdmissionSettings(max_queue=10_000))
    first, _ = send(queue, "first")
    for leaver in [send(queue, "leaver")[0] for _ in range(1000)]:
        leaver.abort()

    (fair_queue,) = queue._queues.values()
    assert sum(map(len, fair_queue._entries.values())) < 100
    first.abort()
    assert not queue._queues


async def test_queueing_times_out() -> None:
    """The error is a 503, with the reason if there is no worker."""
    workers = Workers()
    queue = AdmissionQueue(workers, AdmissionSettings(queue_timeout_s=0.02))
    _, listener = send(queue, "a")
    await listener.ended.wait()
    assert isinstance(listener.error, Unavailable)
    assert "had capacity" in listener.error.message

    workers.absent = "all are dead"
    resumed, listener = send(queue, "b", RESUMED)
    await listener.ended.wait()
    resumed.abort()

    assert listener.error is not None
    assert listener.error.message == "all are dead"
    assert listener.error.retry_after_s
    assert queue.waiting_requests == 0


async def test_a_full_queue_rejects() -> None:
    """429 with a time computed from the queue's throughput, but never for resumed requests."""
    workers = Workers(free=3)
    queue = AdmissionQueue(workers, AdmissionSettings(max_queue=9))
    for number in range(12):
        send(queue, f"{number}")

    with pytest.raises(Overloaded, match="9 requests wait") as caught:
        send(queue, "refused")
    send(queue, "resumed", RESUMED)
    send(queue, "joined", Placement(joins=True))

    # Three started within this second, so ten take four.
    assert caught.value.retry_after_s == 4
    assert queue.waiting_requests == 11


async def test_a_rejection_can_be_checked_in_advance() -> None:
    """So no work is done for a request that finds the queue full."""
    workers = Workers()
    queue = AdmissionQueue(workers, AdmissionSettings(max_queue=2))
    queue.check_open(MODEL, 0)
    send(queue, "a")
    queue.check_open(MODEL, 0)
    send(queue, "b")

    with pytest.raises(Overloaded):
        queue.check_open(MODEL, 0)
    queue.check_open("another", 0)


async def test_the_queue_is_by_default_as_long_as_the_workers_capacity() -> None:
    """As many sequences may be queued as run."""
    queue = AdmissionQueue(Workers(), AdmissionSettings())
    for number in range(10):
        send(queue, f"{number}", n=2)

    with pytest.raises(Overloaded):
        send(queue, "refused")


async def test_without_a_worker_a_full_queue_is_unavailable() -> None:
    """503 and not 429: the client's rate is not the cause."""
    workers = Workers(absence="all are dead")
    queue = AdmissionQueue(workers, AdmissionSettings(max_queue=1))
    send(queue, "waits")

    with pytest.raises(Unavailable, match="all are dead"):
        send(queue, "refused")


async def test_a_queue_may_be_disabled() -> None:
    """With a length of 0 requests without free capacity are rejected at once."""
    queue = AdmissionQueue(Workers(free=1), AdmissionSettings(max_queue=0))
    send(queue, "a")

    with pytest.raises(Overloaded, match="busy"):
        send(queue, "b")


async def test_the_memory_of_the_queue_is_bounded() -> None:
    """Long prompts fill the queue before its length does."""
    queue = AdmissionQueue(Workers(), AdmissionSettings(max_queue=1000, max_queue_bytes=1_400_000))
    for number in range(8):
        send(queue, f"{number}", tokens=10_000)

    with pytest.raises(Overloaded):
        send(queue, "refused", tokens=10_000)
