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
        """Remember."""
        self.aborted = True

    def explain(self) -> str:
        """Say where it is."""
        return "here"


class Workers:
    """Workers with so much room, for each adapter."""

    def __init__(self, room: int = 0, absence: str = "") -> None:
        self.rooms = {0: room}
        self.absent = absence
        self.parts: list[Part] = []
        self._changed: Callable[[], None] = lambda: None

    @property
    def started(self) -> list[str]:
        """Ids of requests, in the order in which they came."""
        return [part.request_id for part in self.parts]

    def subscribe(self, changed: Callable[[], None]) -> None:
        """Remember."""
        self._changed = changed

    def capacity(self, model: str) -> int:
        """Tell how many run at a time."""
        return 20

    def unavailable_reason(self, model: str, adapter_id: int = 0) -> str:
        """Return why there is no worker."""
        return self.absent

    def try_submit(
        self, model: str, submit: pb.Submit, listeners: Sequence[SlotListener], placement: Placement = NEW
    ) -> Part | None:
        """Take a request if there is capacity."""
        if self.rooms.get(submit.lora.id, 0) <= 0:
            return None
        if self.absent:
            raise Unavailable(self.absent)
        self.rooms[submit.lora.id] -= len(listeners)
        self.parts.append(Part(submit))
        return self.parts[-1]

    async def free(self, room: int = 1, adapter_id: int = 0) -> None:
        """Have room, say so, and let those who wait move."""
        self.rooms[adapter_id] = self.rooms.get(adapter_id, 0) + room
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


async def test_with_room_nobody_waits() -> None:
    """A request is dispatched at once to a worker with free capacity."""
    workers = Workers(room=1)
    queue = AdmissionQueue(workers, AdmissionSettings())

    submission, _ = send(queue, "a")

    assert workers.started == ["a"]
    assert submission.explain() == "here"
    assert queue.waiting_requests == 0


async def test_the_line_moves_when_room_comes() -> None:
    """The first to come is the first to start, one for each free place, and may be aborted afterwards."""
    workers = Workers()
    queue = AdmissionQueue(workers, AdmissionSettings())
    waiting = [send(queue, name)[0] for name in "abc"]
    assert waiting[0].explain() == ""

    await workers.free()
    assert workers.started == ["a"]
    await workers.free(2)

    assert workers.started == ["a", "b", "c"]
    waiting[1].abort()
    assert [part.aborted for part in workers.parts] == [False, True, False]


async def test_room_that_nobody_told_of_is_found() -> None:
    """Another coordinator's requests end without notice: the queue polls the capacity."""
    workers = Workers()
    queue = AdmissionQueue(workers, AdmissionSettings())
    send(queue, "a")

    workers.rooms[0] = 1

    async with asyncio.timeout(5):
        while not workers.started:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_a_newcomer_does_not_pass_those_who_wait() -> None:
    """Capacity that was just freed belongs to the head of the queue."""
    workers = Workers()
    queue = AdmissionQueue(workers, AdmissionSettings())
    send(queue, "first")
    workers.rooms[0] = 1

    send(queue, "second")
    await workers.free(0)

    assert workers.started == ["first"]


async def test_resumed_ones_go_first_then_by_priority() -> None:
    """A reply that the client has a part of goes on before others begin; a lower priority goes earlier."""
    workers = Workers()
    queue = AdmissionQueue(workers, AdmissionSettings())
    send(queue, "late", priority=5)
    send(queue, "usual")
    send(queue, "early", priority=-5)
    send(queue, "resumed", RESUMED, priority=9)

    await workers.free(4)

    assert workers.started == ["resumed", "early", "usual", "late"]


async def test_tenants_take_turns_by_work() -> None:
    """Who sends much, or long prompts, does not keep others waiting."""
    workers = Workers()
    queue = AdmissionQueue(workers, AdmissionSettings())
    greedy, modest = Placement(tenant="greedy"), Placement(tenant="modest")
    for number in range(4):
        send(queue, f"greedy-{number}", greedy, tokens=1000)
    for number in range(3):
        send(queue, f"modest-{number}", modest, tokens=100)

    await workers.free(7)

    # A greedy request is worth three and a half modest ones.
    order = ["greedy-0", "modest-0", "modest-1", "modest-2", "greedy-1", "greedy-2", "greedy-3"]
    assert workers.started == order


async def test_a_missing_adapter_holds_up_nobody_else() -> None:
    """Requests whose adapter no worker has wait apart."""
    workers = Workers(room=1)
    queue = AdmissionQueue(workers, AdmissionSettings())
    send(queue, "adapted", adapter_id=7)

    send(queue, "plain")
    assert workers.started == ["plain"]
    await workers.free(adapter_id=7)

    assert workers.started == ["plain", "adapted"]


async def test_many_choices_start_with_the_first_place() -> None:
    """A request for more sequences than any worker runs does not wait for ever."""
    workers = Workers()
    queue = AdmissionQueue(workers, AdmissionSettings(max_queue=2000))
    send(queue, "huge", n=1000)
    send(queue, "small")

    await workers.free()
    assert workers.started == ["huge"]
    await workers.free(1000)

    assert workers.started == ["huge", "small"]


async def test_one_that_cannot_be_sent_holds_up_nobody() -> None:
    """If dispatching it fails, its listeners get the error and the next one is dispatched."""

    class Broken(Workers):
        def try_submit(
            self, model: str, submit: pb.Submit, listeners: Sequence[SlotListener], placement: Placement = NEW
        ) -> Part | None:
            if submit.request_id == "broken" and self.rooms[0]:
                raise ValueError("broken")
            return super().try_submit(model, submit, listeners, placement)

    workers = Broken()
    queue = AdmissionQueue(workers, AdmissionSettings())
    _, listener = send(queue, "broken")
    send(queue, "whole")

    await workers.free()

    assert isinstance(listener.error, EngineFailed)
    assert workers.started == ["whole"]


class Helpless(Listener):
    """Cannot take any ending."""

    def step(self, token_ids: list[int], finish: pb.Finish | None) -> bool:
        """Break."""
        raise ValueError("cannot end")

    def fail(self, error: TokenwireError) -> None:
        """Break, too."""
        super().fail(error)
        raise ValueError("cannot fail")


def ask_in_pairs(queue: AdmissionQueue) -> tuple[Listener, list[Listener]]:
    """Submit two requests; returns the first listener, which cannot take its ending, and all the others."""
    helpless, others = Helpless(), [Listener(), Listener()]
    queue.submit(MODEL, submission(request_id="a"), [helpless, others[0]])
    queue.submit(MODEL, submission(request_id="b"), [others[1]])
    return helpless, others


async def test_a_listener_that_breaks_on_its_end_breaks_alone() -> None:
    """Its neighbours get their endings: on an abort, on a timeout, on a failed dispatch."""
    queue = AdmissionQueue(Workers(), AdmissionSettings())
    helpless, others = ask_in_pairs(queue)
    assert queue.end(None) == 3
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
    await workers.free()
    assert all(isinstance(listener.error, Unavailable) for listener in others)


async def test_a_line_that_breaks_holds_up_no_other_model() -> None:
    """Whatever is wrong with one model's workers."""

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

    await workers.free()

    assert workers.started == ["b"]


async def test_who_leaves_the_line_is_forgotten() -> None:
    """An aborted request never reaches a worker, however often it is aborted."""
    workers = Workers()
    queue = AdmissionQueue(workers, AdmissionSettings(max_queue=1))
    leaver, listener = send(queue, "leaver")

    leaver.abort()
    leaver.abort()
    send(queue, "stayer")
    await workers.free(2)

    assert workers.started == ["stayer"]
    assert not listener.ended.is_set()


async def test_requests_end_by_their_ids() -> None:
    """Those that wait are told so as a worker would tell them; others stay."""
    workers = Workers()
    queue = AdmissionQueue(workers, AdmissionSettings())
    listeners = {name: send(queue, name)[1] for name in "abc"}

    assert queue.end(["b", "x"]) == 1
    assert listeners["b"].finish == pb.Finish(reason=pb.FINISH_REASON_ABORT)
    assert queue.end(None) == 2
    await workers.free(3)

    assert workers.started == []


async def test_a_crowd_that_leaves_takes_its_memory_along() -> None:
    """Requests removed from the middle of the queue are not kept until their turn."""
    queue = AdmissionQueue(Workers(), AdmissionSettings(max_queue=10_000))
    first, _ = send(queue, "first")
    for leaver in [send(queue, "leaver")[0] for _ in range(1000)]:
        leaver.abort()

    (line,) = queue._queues.values()
    assert sum(map(len, line._entries.values())) < 100
    first.abort()
    assert not queue._queues


async def test_waiting_has_an_end() -> None:
    """Who waited too long is told so with a 503, and that no worker is there if that is why."""
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


async def test_a_full_line_refuses() -> None:
    """429 with a time computed from the queue's throughput, but never for resumed requests."""
    workers = Workers(room=3)
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


async def test_who_would_be_refused_can_know_before() -> None:
    """So that no work is done for a request that finds the queue full."""
    workers = Workers()
    queue = AdmissionQueue(workers, AdmissionSettings(max_queue=2))
    queue.check_open(MODEL, 0)
    send(queue, "a")
    queue.check_open(MODEL, 0)
    send(queue, "b")

    with pytest.raises(Overloaded):
        queue.check_open(MODEL, 0)
    queue.check_open("another", 0)


async def test_the_line_is_as_long_as_the_workers_are_wide() -> None:
    """By default as many sequences may be queued as run."""
    queue = AdmissionQueue(Workers(), AdmissionSettings())
    for number in range(10):
        send(queue, f"{number}", n=2)

    with pytest.raises(Overloaded):
        send(queue, "refused")


async def test_without_a_worker_a_full_line_is_unavailable() -> None:
    """503 and not 429: it is not the client's rate that is wrong."""
    workers = Workers(absence="all are dead")
    queue = AdmissionQueue(workers, AdmissionSettings(max_queue=1))
    send(queue, "waits")

    with pytest.raises(Unavailable, match="all are dead"):
        send(queue, "refused")


async def test_no_line_is_wanted() -> None:
    """With a length of 0 requests without free capacity are rejected at once."""
    queue = AdmissionQueue(Workers(room=1), AdmissionSettings(max_queue=0))
    send(queue, "a")

    with pytest.raises(Overloaded, match="busy"):
        send(queue, "b")


async def test_memory_is_bounded() -> None:
    """Long prompts fill the queue before its length does."""
    queue = AdmissionQueue(Workers(), AdmissionSettings(max_queue=1000, max_queue_bytes=1_400_000))
    for number in range(8):
        send(queue, f"{number}", tokens=10_000)

    with pytest.raises(Overloaded):
        send(queue, "refused", tokens=10_000)
