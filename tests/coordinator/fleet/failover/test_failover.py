"""The decision for each sequence, over fake workers.

One file, since all decisions are about the same fake workers.
"""

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.workers import Listener, accept, until
from tokenwire.coordinator.fleet.death_evidence import LEAST_SERVED
from tokenwire.coordinator.fleet.failover.failover import Failover
from tokenwire.coordinator.fleet.failover.settings import FailoverSettings
from tokenwire.coordinator.fleet.request_handle import NEW, LateTenant, Placement
from tokenwire.coordinator.fleet.session import WorkerSession
from tokenwire.coordinator.fleet.slots import SlotListener
from tokenwire.coordinator.fleet.submission import Submission
from tokenwire.errors import (
    EngineFailed,
    InvalidRequest,
    Overloaded,
    PoisonRequest,
    TokenwireError,
    Unavailable,
    WorkerLost,
)
from tokenwire.protocol.model_revision import ModelRevision
from tokenwire.v1 import inference_pb2 as pb

ABORT = pb.FINISH_REASON_ABORT
LOST = WorkerLost("gone")


class LosablePart:
    """The part of a request that one worker has."""

    def __init__(self, submission: Submission, listeners: Sequence[SlotListener], placement: Placement) -> None:
        self.submission = submission
        self.listeners = listeners
        self.placement = placement
        self.session: WorkerSession | None = None
        self.left: list[WorkerSession | None] = []
        """Whence it was aborted; None: the queue."""
        self.resumed = placement.resumed
        self.aborted_one: list[SlotListener] = []
        self.aborted = False

    def abort(self) -> None:
        """Record the abort."""
        self.aborted = True

    def abort_on(self, session: WorkerSession | None) -> None:
        """Record from where it was aborted."""
        self.left.append(session)
        self.aborted |= session is self.session

    def abort_one(self, listener: SlotListener) -> None:
        """Record the abort of one sequence."""
        self.aborted_one.append(listener)

    def explain(self) -> str:
        """Return no explanation."""
        return ""

    def lose(self) -> None:
        """Lose the worker."""
        for listener in self.listeners:
            listener.fail(LOST)


class SuccessiveWorkers:
    """Sends every request to the next worker; each is used once."""

    def __init__(self) -> None:
        self.parts: list[LosablePart] = []
        self.living: dict[str, bool | None] = {}
        self.refuses: Exception | None = None
        self.queues = False
        """Whether requests are queued in place of being sent."""
        self.splits = False
        """Whether each sequence of a request goes to a worker of its own, and the last one is queued."""
        self.instance_id = ""
        """Of the worker for all requests, if it is one."""
        self.proven = True
        self.free = 9
        self.total = 99
        self.invariant: int | None = None
        self.checked: list[str] = []
        self.read_at: list[int] = []
        """How many parts there were whenever the work was read."""
        self.waiting: list[LateTenant] = []

    def free_capacity(
        self, model: str, adapter_id: int = 0, revision: ModelRevision | None = None, seeded_noise: str = ""
    ) -> int:
        """Return what the test set."""
        return self.free

    def capabilities(
        self, model: str, adapter_id: int = 0, revision: ModelRevision | None = None, seeded_noise: str = ""
    ) -> pb.EngineCapabilities:
        """Return whether they compute an adapter's tokens alike in any batch."""
        return pb.EngineCapabilities(batch_invariant=adapter_id == self.invariant)

    def draws(self, model: str, adapter_id: int, revision: ModelRevision | None, seeded_noise: str) -> bool:
        """Return that they do."""
        return True

    def has_other(self, model: str, adapter_id: int, revision: ModelRevision | None, than: Collection[str]) -> bool:
        """Return whether there are more than these."""
        return len(than) < self.total

    def is_alive(self, instance_id: str) -> bool | None:
        """Return what the test set."""
        return self.living.get(instance_id)

    def read_work(self) -> None:
        """Record the time."""
        self.read_at.append(len(self.parts))

    def late(self, after_s: float) -> Sequence[LateTenant]:
        """Return what the test set, once."""
        late, self.waiting = self.waiting, []
        return late

    def check_open(self, model: str, adapter_id: int, placement: Placement = NEW, sequences: int = 1) -> None:
        """Admit it, or raise."""
        self.checked.append(placement.tenant)
        if self.refuses is not None:
            raise self.refuses

    def submit(
        self, model: str, submission: Submission, listeners: Sequence[SlotListener], placement: Placement = NEW
    ) -> LosablePart:
        """Take it, or raise."""
        if self.refuses is not None:
            raise self.refuses
        session = WorkerSession(f"nowhere:{len(self.parts)}", "test", accept)
        session.instance_id = self.instance_id or str(len(self.parts))
        for _ in range(LEAST_SERVED if self.proven else 0):
            session._on_survived(Submission())
        session.capabilities = self.capabilities(model, submission.lora.id)
        if self.splits and not placement.resumed:
            for start in range(len(listeners) - 1):
                each = WorkerSession(f"{start}", "test", accept)
                placement.on_placed(each, replace(submission, start=start), 1)
        elif not self.queues:
            placement.on_placed(session, submission, len(listeners))
        self.parts.append(LosablePart(submission, listeners, placement))
        self.parts[-1].session = None if self.queues else session
        return self.parts[-1]

    async def part(self, number: int) -> LosablePart:
        """Wait for a part."""
        await until(lambda: len(self.parts) > number)
        return self.parts[number]


@pytest.fixture
def workers() -> SuccessiveWorkers:
    """Workers for every request."""
    return SuccessiveWorkers()


@pytest.fixture
def failover(workers: SuccessiveWorkers) -> Failover:
    """The failover layer in front of them."""
    return Failover(workers, FailoverSettings(attempts=9), workers)


def submitted(
    failover: Failover,
    n: int = 1,
    request_id: str = "r",
    prompt: int = 1,
    max_tokens: int | None = None,
    **sampling: Any,
) -> list[Listener]:
    """Submit a request."""
    listeners = [Listener() for _ in range(n)]
    params = pb.SamplingParams(**sampling)
    failover.submit("m", Submission(request_id, [prompt], params, max_tokens), listeners)
    return listeners


def is_aborted(listener: Listener) -> bool:
    """Return whether a sequence ended as aborted."""
    return listener.finish is not None and listener.finish.reason == ABORT and listener.error is None


async def test_a_request_aborted_by_id_is_not_resumed(failover: Failover, workers: SuccessiveWorkers) -> None:
    """Its worker confirmed the abort, and was lost before its terminal event arrived."""
    (wanted,), (spared,) = submitted(failover), submitted(failover, request_id="other")
    workers.parts[0].listeners[0].step([5], None)
    workers.parts[1].listeners[0].step([6], None)

    assert failover.abort(["r"]) == 0  # its worker ends it, and counts it
    assert not wanted.ended.is_set()
    for part in list(workers.parts):
        part.lose()

    await wanted.ended.wait()
    assert is_aborted(wanted)
    assert wanted.token_ids == [5]
    assert (await workers.part(2)).submission.request_id == "other"
    assert not spared.ended.is_set()


@pytest.mark.parametrize("request_ids", [["r"], None])
async def test_a_sequence_without_a_worker_is_aborted_at_once(
    failover: Failover, workers: SuccessiveWorkers, request_ids: list[str] | None
) -> None:
    """With two workers there is no other one that could take over."""
    listeners = submitted(failover, n=2)
    workers.parts[0].lose()

    assert failover.abort(request_ids) == 2

    assert all(map(is_aborted, listeners))
    await asyncio.sleep(0)
    assert len(workers.parts) == 1
    assert failover.abort(request_ids) == 0


@pytest.mark.parametrize("invariant", [True, False])
async def test_a_worker_that_comes_later_replays_what_it_would_continue_differently(
    failover: Failover, workers: SuccessiveWorkers, invariant: bool
) -> None:
    """How a queued sequence goes on was decided by the workers of that moment, and it may get another one."""
    workers.invariant = 0
    (listener,) = submitted(failover, max_tokens=9, temperature=0.0, min_tokens=3, logprobs=0)
    workers.parts[0].listeners[0].step([5, 6], None)
    workers.queues = True
    workers.parts[0].lose()
    part = await workers.part(1)
    assert list(part.submission.prompt_token_ids) == [1, 5, 6]

    later = WorkerSession("later:1", "test", accept)
    later.capabilities = pb.EngineCapabilities(batch_invariant=invariant)
    part.placement.on_placed(later, part.submission, 1)

    sent = part.submission
    found = list(sent.prompt_token_ids), sent.max_tokens, sent.sampling_params.min_tokens
    assert found == (([1, 5, 6], 7, 1) if invariant else ([1], 9, 3))
    for token_ids in [[7, 8]] if invariant else [[5], [6, 7], [8]]:
        part.listeners[0].step(token_ids, None)
    assert listener.token_ids == [5, 6, 7, 8]


async def test_a_request_aborted_by_id_is_not_moved(failover: Failover, workers: SuccessiveWorkers) -> None:
    """A draining worker may have sequences whose terminal event has not arrived."""
    submitted(failover)
    submitted(failover, request_id="other")
    sessions = [sequence.session for part in workers.parts for sequence in part.listeners]  # type: ignore[attr-defined]
    failover.abort(["r"])

    for session in sessions:
        failover.on_worker_draining(session)

    assert (await workers.part(2)).submission.request_id == "other"
    assert (workers.parts[0].aborted, workers.parts[1].aborted) == (False, True)
    failover.stop()


def worker_of(part: LosablePart, number: int = 0) -> WorkerSession:
    """Return the worker of one of its sequences."""
    session = part.listeners[number].session  # type: ignore[attr-defined]
    assert isinstance(session, WorkerSession)
    return session


HANDED_BACK = pb.Finish(reason=ABORT, handed_back=True)


async def test_a_draining_worker_hands_over_each_sequence_once(failover: Failover, workers: SuccessiveWorkers) -> None:
    """Those that were submitted together leave together; one that was resumed alone leaves its siblings in peace."""
    listeners = submitted(failover, n=4)
    first = workers.parts[0]
    first.listeners[0].step([6], HANDED_BACK)
    first.listeners[1].step([5], pb.Finish(reason=pb.FINISH_REASON_STOP))
    alone = await workers.part(1)

    failover.on_worker_draining(worker_of(alone))
    assert (await workers.part(2)).listeners == alone.listeners
    assert (first.aborted, alone.aborted, len(workers.parts)) == (False, True, 3)
    failover.on_worker_draining(worker_of(first, 2))
    await workers.part(4)

    assert first.aborted
    assert len(first.left) == 1
    assert [part.listeners for part in workers.parts[3:]] == [[first.listeners[2]], [first.listeners[3]]]
    assert not any(part.aborted for part in workers.parts[2:])
    assert [listener.token_ids for listener in listeners] == [[6], [5], [], []]
    assert [part.resumed for part in workers.parts] == [False, True, True, True, True]
    failover.stop()


async def test_what_is_elsewhere_stays_when_a_worker_drains(failover: Failover, workers: SuccessiveWorkers) -> None:
    """Other parts of the request run on, and what is queued of it stays there."""
    workers.splits = True
    submitted(failover, n=3)
    (part,) = workers.parts
    sessions = [sequence.session for sequence in part.listeners]  # type: ignore[attr-defined]
    assert sessions[2] is None

    failover.on_worker_draining(sessions[0])

    moved = await workers.part(1)
    assert moved.listeners == part.listeners[:1]
    assert part.left == [sessions[0]]
    assert not part.aborted
    failover.stop()


async def test_only_what_continues_unnoticed_leaves_a_draining_worker(workers: SuccessiveWorkers) -> None:
    """A replay would hold its client up: its worker ends such a sequence, or hands it back."""
    failover = Failover(workers, FailoverSettings(attempts=9, resume="exact"), workers)
    submitted(failover, temperature=0.0)
    submitted(failover, request_id="sampled")
    submitted(failover, request_id="waiting", temperature=0.0)
    for part in workers.parts[:2]:
        part.listeners[0].step([5], None)
    sessions = [worker_of(part) for part in workers.parts]

    for session in sessions:
        failover.on_worker_draining(session)

    await workers.part(4)
    assert [part.submission.request_id for part in workers.parts[3:]] == ["sampled", "waiting"]
    assert [part.aborted for part in workers.parts[:3]] == [False, True, True]
    failover.stop()


async def test_sequences_are_taken_back_for_a_tenant_that_waits(workers: SuccessiveWorkers) -> None:
    """One of a request goes on from its tokens alone, and is queued again by itself."""
    failover = Failover(workers, FailoverSettings(preempt_after_s=0.01), workers)
    failover.submit("m", Submission("r", [1, 2]), [Listener() for _ in range(3)], Placement(tenant="greedy"))
    (part,) = workers.parts
    for token_id, listener in enumerate(part.listeners):
        listener.step([token_id], None)
    workers.waiting = [LateTenant(Placement(tenant="small"), 0, 1, [worker_of(part)], lambda other: True)]

    moved = await workers.part(1)

    assert (part.aborted_one, part.aborted) == ([moved.listeners[0]], False)
    assert moved.submission.prompt_token_ids == [1, 2, 0]
    assert (moved.placement.preempted, moved.placement.resumed, moved.placement.avoid) == (True, False, frozenset())
    assert (failover.stats.preempted, failover.stats.resumed) == (1, 0)
    failover.stop()


@pytest.mark.parametrize("settings", [FailoverSettings(preempt_after_s=0.0), FailoverSettings(preempt_after_s=5.0)])
async def test_who_waits_is_looked_for_only_where_something_may_be_taken_back(
    workers: SuccessiveWorkers, settings: FailoverSettings
) -> None:
    """Not if that is off, and not once the coordinator stops."""
    failover = Failover(workers, settings, workers)
    if settings.preempt_after_s:
        failover.stop()

    submitted(failover)

    assert failover._late_check is None


async def test_what_cannot_go_on_exactly_is_not_taken_back(workers: SuccessiveWorkers) -> None:
    """Whoever waits for it waits until it ends, or another one is there that can."""
    failover = Failover(workers, FailoverSettings(resume="exact", preempt_after_s=0.01), workers)
    for name, temperature in (("greedy", 0.0), ("sampled", 1.0)):
        submission = Submission(name, [1], pb.SamplingParams(temperature=temperature))
        failover.submit("m", submission, [Listener(), Listener()], Placement(tenant="greedy"))
    sessions = []
    for part in workers.parts:
        sessions.append(worker_of(part))
        for count, listener in enumerate(part.listeners):
            listener.step([1] * (count + 1), None)
    workers.waiting = [LateTenant(Placement(tenant="small"), 0, 1, sessions, lambda other: True)]

    moved = await workers.part(2)

    assert moved.submission.request_id == "sampled"
    failover.stop()


@pytest.mark.parametrize(
    ("settings", "known", "earlier", "expected"),
    [
        (FailoverSettings(), True, "", [True, False]),
        (FailoverSettings(), False, "", [False, False]),
        (FailoverSettings(), False, "small", [True, False]),
        (FailoverSettings(attempts=0), True, "", [True, True]),
        (FailoverSettings(preempt_after_s=0.0), True, "small", [False, False]),
    ],
    ids=["keys", "one tenant", "two addresses", "no failover", "taken back never"],
)
async def test_a_tenant_may_not_keep_all_places_where_there_are_others(
    workers: SuccessiveWorkers, settings: FailoverSettings, known: bool, earlier: str, expected: list[bool]
) -> None:
    """With what cannot be taken back: where keys are of several, or another one was here; not by a trainer."""
    failover = Failover(workers, settings, workers, has_tenants=lambda: known)
    if earlier:
        failover.submit("m", Submission(), [Listener()], Placement(tenant=earlier))
    for temperature in (0.0, 1.0):
        params = pb.SamplingParams(temperature=temperature, extra_args_json="{}")
        if temperature:
            params.ClearField("extra_args_json")
        failover.submit("m", Submission(sampling_params=params), [Listener()], Placement(tenant="greedy"))

    assert [part.placement.keeps_place for part in workers.parts[-2:]] == expected
    failover.stop()


async def test_an_abandoned_request_is_aborted_wherever_it_runs(failover: Failover, workers: SuccessiveWorkers) -> None:
    """What was resumed alone, and what still runs together; nobody is called for it."""
    listeners = [Listener(), Listener()]
    handle = failover.submit("m", Submission(prompt_token_ids=[1]), listeners)
    workers.parts[0].listeners[0].step([], HANDED_BACK)
    await workers.part(1)

    handle.abort()

    assert [part.aborted for part in workers.parts] == [True, True]
    assert not any(listener.ended.is_set() for listener in listeners)
    assert not failover.live


async def test_suspects_are_retried_one_after_the_other(failover: Failover, workers: SuccessiveWorkers) -> None:
    """Each alone on a worker; once the first has gone on, it is the next one's turn."""
    workers.living.update(a=False, b=False)
    workers.instance_id = "a"
    listeners = [submitted(failover, prompt=prompt)[0] for prompt in (1, 2)]
    workers.instance_id = "b"
    for part in list(workers.parts):
        part.lose()
    await workers.part(3)
    workers.instance_id = ""
    for part in workers.parts[2:]:
        part.lose()

    first = await workers.part(4)
    assert not first.listeners[0].step([1] * 9, None)
    second = await workers.part(5)

    assert [part.submission.prompt_token_ids[0] for part in (first, second)] == [1, 2]
    assert not any(listener.ended.is_set() for listener in listeners)
    failover.stop()


async def test_a_request_is_admitted_by_the_layers_below(failover: Failover, workers: SuccessiveWorkers) -> None:
    """Before any work on it, by their tenants."""
    failover.check_open("m", 0, Placement(tenant="small"))
    workers.refuses = Overloaded("full")

    with pytest.raises(Overloaded):
        failover.check_open("m", 0, Placement(tenant="greedy"))
    assert workers.checked == ["small", "greedy"]


async def test_a_refused_request_is_sent_again(failover: Failover, workers: SuccessiveWorkers) -> None:
    """A little later: its worker is there."""
    (listener,) = submitted(failover)
    workers.parts[0].listeners[0].fail(Unavailable("asleep"))
    assert len(workers.parts) == 1

    (await workers.part(1)).listeners[0].step([7], pb.Finish(reason=pb.FINISH_REASON_LENGTH))

    assert (listener.token_ids, listener.error) == ([7], None)


ERROR = pb.Finish(reason=pb.FINISH_REASON_ERROR)
FAILURES = [InvalidRequest("no"), Overloaded("full"), Unavailable("away"), EngineFailed("broken"), ERROR]


def _fail(part: LosablePart, failure: TokenwireError | pb.Finish) -> None:
    for listener in part.listeners:
        if isinstance(failure, pb.Finish):
            listener.step([], failure)
        else:
            listener.fail(failure)


@pytest.mark.parametrize("failure", FAILURES, ids=lambda failure: type(failure).__name__)
async def test_a_worker_is_to_blame_for_what_another_one_serves(
    failover: Failover, workers: SuccessiveWorkers, failure: TokenwireError | pb.Finish
) -> None:
    """A request that fails before its first token is tried elsewhere; it counts once, however many sequences it has."""
    listeners = submitted(failover, n=2)
    first = workers.parts[0].session

    _fail(workers.parts[0], failure)
    parts = [await workers.part(number) for number in (1, 2)]

    assert [part.placement.failed_at for part in parts] == [frozenset({"nowhere:0"})] * 2
    assert first is not None
    assert first.failed == 0
    parts[0].listeners[0].prefilled(pb.PrefillInfo())
    parts[1].listeners[0].step([6], pb.Finish(reason=pb.FINISH_REASON_LENGTH))
    assert first.failed == 1
    parts[0].listeners[0].step([5], pb.Finish(reason=pb.FINISH_REASON_LENGTH))
    assert [(listener.token_ids, listener.error) for listener in listeners] == [([5], None), ([6], None)]
    assert (first.failed, failover.live) == (1, {})
    assert (first.address in first.witnesses) is not isinstance(failure, InvalidRequest)  # its own error tells, too


@pytest.mark.parametrize("failure", FAILURES[:-1], ids=lambda failure: type(failure).__name__)
async def test_a_request_that_fails_everywhere_is_itself_to_blame(
    failover: Failover, workers: SuccessiveWorkers, failure: TokenwireError
) -> None:
    """Its client gets the last worker's error."""
    workers.total = 2
    (listener,) = submitted(failover)
    _fail(workers.parts[0], EngineFailed("the first one"))

    _fail(await workers.part(1), InvalidRequest("the last one"))

    assert str(listener.error) == "the last one"
    assert [part.session.failed for part in workers.parts if part.session] == [0, 0]
    assert failover.live == {}


async def test_what_an_engine_fails_after_its_first_token_goes_on_elsewhere(
    failover: Failover, workers: SuccessiveWorkers
) -> None:
    """From its tokens, as after a loss: a worker may fail whatever it gets, a token later, and is to blame then."""
    (listener,) = submitted(failover)
    first = workers.parts[0].session
    workers.parts[0].listeners[0].step([5], None)
    workers.parts[0].listeners[0].step([9], ERROR)

    part = await workers.part(1)
    part.listeners[0].step([6], pb.Finish(reason=pb.FINISH_REASON_LENGTH))

    assert (listener.token_ids, part.submission.prompt_token_ids[-1]) == ([5, 6], 5)
    assert first is not None
    assert first.failed == 1


async def test_what_each_engine_fails_after_its_first_token_ends_there(
    failover: Failover, workers: SuccessiveWorkers
) -> None:
    """The request is to blame, and keeps what it has."""
    workers.total = 2
    (listener,) = submitted(failover)
    for token, number in ((5, 0), (6, 1)):
        (sequence,) = (await workers.part(number)).listeners
        sequence.step([token], None)
        sequence.step([], ERROR)

    assert listener.finish is not None
    assert (listener.finish.reason, listener.token_ids) == (pb.FINISH_REASON_ERROR, [5, 6])
    assert [part.session.failed for part in workers.parts if part.session] == [0, 0]


async def test_a_request_fails_at_as_many_workers_as_it_has_attempts(workers: SuccessiveWorkers) -> None:
    """Besides the losses that it survives; without any, each is the client's."""
    failover = Failover(workers, FailoverSettings(attempts=2), workers)
    (listener,) = submitted(failover)
    workers.parts[0].lose()
    for number in range(1, 4):
        assert listener.error is None
        _fail(await workers.part(number), EngineFailed(str(number)))
    assert str(listener.error) == "3"

    (listener,) = submitted(Failover(workers, FailoverSettings(attempts=0), workers))
    _fail(workers.parts[4], EngineFailed("at once"))
    assert str(listener.error) == "at once"


async def test_an_aborted_request_that_fails_is_not_tried_elsewhere(
    failover: Failover, workers: SuccessiveWorkers
) -> None:
    """It ends as aborted."""
    (listener,) = submitted(failover)
    failover.abort(["r"])

    _fail(workers.parts[0], EngineFailed("broken"))

    await listener.ended.wait()
    assert is_aborted(listener)
    assert len(workers.parts) == 1


async def test_work_is_read_before_a_sequence_goes_on_elsewhere(failover: Failover, workers: SuccessiveWorkers) -> None:
    """There it begins to count anew, whether its worker was lost or refused it."""
    submitted(failover)
    workers.parts[0].lose()
    (await workers.part(1)).listeners[0].fail(Unavailable("full"))
    await workers.part(2)

    assert workers.read_at[0] == 1
    assert 2 in workers.read_at


async def test_a_handle_ends_when_its_sequence_goes_on_elsewhere(
    failover: Failover, workers: SuccessiveWorkers
) -> None:
    """What counts it would keep it."""
    submitted(failover)
    workers.parts[0].lose()
    second = await workers.part(1)

    second.listeners[0].fail(Unavailable("full"))

    await workers.part(2)
    assert second.aborted


async def test_a_request_has_as_many_attempts_as_configured(workers: SuccessiveWorkers) -> None:
    """The loss after the last one is the client's; with none, each is."""
    failover = Failover(workers, FailoverSettings(attempts=1), workers)
    (listener,) = submitted(failover)
    workers.parts[0].lose()
    (await workers.part(1)).lose()
    await listener.ended.wait()
    assert listener.error == LOST

    (direct,) = submitted(Failover(workers, FailoverSettings(attempts=0), workers))
    assert workers.parts[2].listeners == [direct]


async def test_a_prompt_is_scored_once(failover: Failover, workers: SuccessiveWorkers) -> None:
    """Its log-probabilities are not computed again for a client that has them."""
    for scored in (False, True):
        submitted(failover, prompt_logprobs=1)
        part = workers.parts[-1]
        if scored:
            part.listeners[0].prefilled(pb.PrefillInfo())
        part.lose()

        resumed = await workers.part(len(workers.parts))
        assert resumed.submission.sampling_params.HasField("prompt_logprobs") == (not scored)


@pytest.mark.parametrize(("adapter_id", "prompt"), [(7, [1, 5]), (8, [1])])
async def test_the_workers_of_its_adapter_say_how_a_sequence_is_resumed(
    workers: SuccessiveWorkers, adapter_id: int, prompt: list[int]
) -> None:
    """From its tokens where these alone determine the next one, else from its start."""
    failover = Failover(workers, FailoverSettings(attempts=9, resume="exact"), workers)
    workers.invariant = 7
    submission = Submission(prompt_token_ids=[1], sampling_params=pb.SamplingParams(temperature=0.0))
    submission.lora.id = adapter_id
    failover.submit("m", submission, [Listener()])
    workers.parts[0].listeners[0].step([5], None)

    workers.parts[0].lose()

    assert list((await workers.part(1)).submission.prompt_token_ids) == prompt


class OtherRevisionBeside(SuccessiveWorkers):
    """Workers that compute tokens alike in any batch, beside some of another revision that do not."""

    submits = False

    def capabilities(
        self, model: str, adapter_id: int = 0, revision: ModelRevision | None = None, seeded_noise: str = ""
    ) -> pb.EngineCapabilities:
        """Return whether those that are asked for do; as the base calls it, one of them."""
        return pb.EngineCapabilities(batch_invariant=revision is not None or self.submits)

    def submit(
        self, model: str, submission: Submission, listeners: Sequence[SlotListener], placement: Placement = NEW
    ) -> LosablePart:
        """Take it."""
        self.submits = True
        part = super().submit(model, submission, listeners, placement)
        self.submits = False
        return part


async def test_the_workers_of_its_revision_say_how_a_sequence_is_resumed() -> None:
    """No other one may go on with it."""
    workers = OtherRevisionBeside()
    failover = Failover(workers, FailoverSettings(attempts=9, resume="exact"), workers)
    greedy = pb.SamplingParams(temperature=0.0)
    failover.submit("m", Submission(prompt_token_ids=[1], sampling_params=greedy), [Listener()])
    workers.parts[0].listeners[0].step([5], None)

    workers.parts[0].lose()

    assert list((await workers.part(1)).submission.prompt_token_ids) == [1, 5]


async def test_an_ejected_worker_hands_its_sequences_over_until_it_is_readmitted(
    failover: Failover, workers: SuccessiveWorkers
) -> None:
    """As a draining one does, as far as others have room."""
    for _ in range(2):
        submitted(failover)
    slow, other = (worker_of(part) for part in workers.parts)
    failover.on_worker_ejected(slow)
    await workers.part(2)
    assert [part.aborted for part in workers.parts] == [True, False, False]

    workers.free = 0
    failover.on_worker_ejected(other)
    failover.on_worker_readmitted(other)
    workers.free = 1
    failover.on_worker_ejected(worker_of(workers.parts[2]))
    await workers.part(3)
    assert [part.aborted for part in workers.parts] == [True, False, True, False]
    failover.stop()


async def test_a_moved_sequence_that_is_queued_is_aborted_at_once(
    failover: Failover, workers: SuccessiveWorkers
) -> None:
    """It has no worker that could end it."""
    (listener,) = submitted(failover)
    workers.queues, workers.free = True, 1
    failover.on_worker_draining(worker_of(workers.parts[0]))
    await workers.part(1)

    assert failover.abort(["r"]) == 1

    assert is_aborted(listener)
    assert workers.parts[1].aborted
    failover.stop()


async def test_a_sequence_with_all_of_its_tokens_ends(failover: Failover, workers: SuccessiveWorkers) -> None:
    """Its worker was lost before it could say so; no other one gets a request without tokens left."""
    (listener,) = submitted(failover, max_tokens=2)
    workers.parts[0].listeners[0].step([5, 6], None)
    workers.parts[0].lose()

    await listener.ended.wait()

    assert listener.finish == pb.Finish(reason=pb.FINISH_REASON_LENGTH)
    assert (listener.token_ids, len(workers.parts)) == ([5, 6], 1)


async def test_a_sequence_that_is_not_resumed_ends_as_its_worker_ended_it(
    failover: Failover, workers: SuccessiveWorkers
) -> None:
    """With the finish that was handed back, or the error. Both count as failed, those before as resumed."""
    handed_back, lost = submitted(failover)[0], submitted(failover)[0]
    for part in list(workers.parts):
        part.listeners[0].step([], HANDED_BACK)
    await workers.part(3)
    failover.stop()

    workers.parts[2].listeners[0].step([], HANDED_BACK)
    workers.parts[3].lose()

    await handed_back.ended.wait()
    await lost.ended.wait()
    assert (handed_back.finish, lost.error) == (HANDED_BACK, LOST)
    assert (failover.stats.resumed, failover.stats.failed) == (2, 2)


async def test_a_replay_that_differs_ends_an_exact_request(workers: SuccessiveWorkers) -> None:
    """No single run has generated both parts. The error names the first token that differs."""
    failover = Failover(workers, FailoverSettings(attempts=9, resume="exact"), workers)
    (listener,) = submitted(failover, temperature=0.0)
    workers.parts[0].listeners[0].step([5, 6], None)
    workers.parts[0].lose()

    (await workers.part(1)).listeners[0].step([5, 9], None)

    assert listener.error is not None
    assert "differs from the first at token 1" in listener.error.message
    assert (failover.stats.replayed, failover.stats.resumed) == (1, 0)


async def test_a_request_is_suspect_until_its_last_sequence_ends(
    failover: Failover, workers: SuccessiveWorkers
) -> None:
    """The end of one of several does not clear the others."""
    workers.living.update({"0": False, "2": False})
    first, second = submitted(failover, n=2)
    workers.parts[0].lose()
    (await workers.part(1)).listeners[0].step([7], pb.Finish(reason=pb.FINISH_REASON_LENGTH))
    (await workers.part(2)).lose()

    await second.ended.wait()

    assert first.finish is not None
    assert isinstance(second.error, PoisonRequest)
    assert "Two workers died" in second.error.message


async def test_two_cut_connections_do_not_end_a_request(failover: Failover, workers: SuccessiveWorkers) -> None:
    """A request that had just started waits until one of the workers responds again, then it is resumed."""
    (listener,) = submitted(failover)
    workers.parts[0].lose()
    (await workers.part(1)).lose()
    await asyncio.sleep(0)
    assert not listener.ended.is_set()

    workers.living["0"] = True

    (await workers.part(2)).listeners[0].step([7], pb.Finish(reason=pb.FINISH_REASON_LENGTH))
    assert (listener.token_ids, listener.error) == ([7], None)
    failover.stop()


async def test_two_dead_engines_end_the_request(failover: Failover, workers: SuccessiveWorkers) -> None:
    """Their workers report it, while their connections still exist. Each such request is counted."""
    for request in range(2):
        (listener,) = submitted(failover, prompt=request)
        for number in range(2 * request, 2 * request + 2):
            workers.living[f"{number}"] = True
            crash = pb.Finish(reason=pb.FINISH_REASON_ERROR, handed_back=True)
            (await workers.part(number)).listeners[0].step([], crash)

        await listener.ended.wait()

        assert isinstance(listener.error, PoisonRequest)
        assert failover.stats.poison == request + 1


async def test_two_workers_that_served_nobody_else_leave_a_request_alone(
    failover: Failover, workers: SuccessiveWorkers
) -> None:
    """They may fail for everybody: a third one gets it, and is resumed at once. If that dies too, it is poison."""
    workers.proven = False
    workers.living = dict.fromkeys("012345", False)
    (innocent,) = submitted(failover)
    for number in range(2):
        (await workers.part(number)).lose()
    (await workers.part(2)).listeners[0].step([7], pb.Finish(reason=pb.FINISH_REASON_LENGTH))
    (poison,) = submitted(failover, prompt=2)
    for number in range(3, 6):
        (await workers.part(number)).lose()
    await poison.ended.wait()

    assert (innocent.token_ids, innocent.error) == ([7], None)
    assert isinstance(poison.error, PoisonRequest)


NOBODY = Unavailable("nobody")


@pytest.mark.parametrize("error", [ValueError("unforeseen"), NOBODY])
async def test_a_sequence_that_cannot_be_submitted_ends(
    failover: Failover, workers: SuccessiveWorkers, error: Exception
) -> None:
    """Whatever the layers below raise, also when its worker only drains."""
    lost, moved = submitted(failover)[0], submitted(failover)[0]
    session = workers.parts[1].listeners[0].session  # type: ignore[attr-defined]
    workers.refuses = error

    workers.parts[0].lose()
    failover.on_worker_draining(session)

    await until(lambda: lost.ended.is_set() and moved.ended.is_set())
    assert lost.error is not None
    assert moved.error is not None
    assert (lost.error == LOST, failover.stats.failed) == ((True, 2) if error is NOBODY else (False, 0))
    failover.stop()


async def test_a_resumed_request_has_the_age_of_its_first_submission(
    failover: Failover, workers: SuccessiveWorkers
) -> None:
    """By it a worker detects that the request was aborted in between, through another coordinator."""
    workers.living.update({"0": True, "1": True})
    submitted(failover)
    assert workers.parts[0].submission.resumed_after_ms is None

    workers.parts[0].lose()
    resumed = (await workers.part(1)).submission
    (await workers.part(1)).lose()
    again = (await workers.part(2)).submission

    assert resumed.resumed_after_ms is not None
    assert again.resumed_after_ms is not None
    assert again.resumed_after_ms >= resumed.resumed_after_ms
    failover.stop()


async def test_running_requests_of_a_model_are_aborted(failover: Failover, workers: SuccessiveWorkers) -> None:
    """Those with a worker are not resumed, those between two workers end; queued ones and other models' stay."""
    (running,), (between,) = submitted(failover), submitted(failover)
    other = Listener()
    failover.submit("other", Submission(prompt_token_ids=[1]), [other])
    workers.queues = True
    (queued,) = submitted(failover)
    workers.parts[1].lose()
    waiting = await workers.part(4)

    failover.abort_running("m")

    assert is_aborted(between)
    assert waiting.aborted
    assert workers.parts[0].left == [None]
    assert not running.ended.is_set()
    workers.parts[0].lose()
    workers.parts[2].lose()
    await running.ended.wait()
    assert is_aborted(running)
    assert not queued.ended.is_set()
    await workers.part(5)
    assert not other.ended.is_set()
    failover.stop()


async def test_a_sequence_that_ends_twice_is_a_fault(failover: Failover) -> None:
    """Its request would be forgotten while others of its sequences run."""
    submitted(failover)
    (sequence,) = failover.live
    failover.on_ended(sequence)

    with pytest.raises(AssertionError, match="ended twice"):
        failover.on_ended(sequence)
