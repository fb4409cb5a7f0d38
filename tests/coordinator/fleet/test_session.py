"""A coordinator's session with one worker, over a real socket.

One file, since all tests are of one class.
"""

import asyncio
import logging
from dataclasses import replace
from functools import partial

import pytest

from tests.coordinator.fleet.sessions import Requests, ready_session
from tests.turns import TurnsOfOthers
from tests.workers import (
    Listener,
    SessionContext,
    accept,
    running_session,
    running_worker,
    scripted_worker,
    submission,
    until,
    welcome,
)
from tokenwire.coordinator.fleet.circuit_breaker import CircuitBreaker
from tokenwire.coordinator.fleet.death_evidence import LEAST_SERVED
from tokenwire.coordinator.fleet.frame_parts import MOST_TOKENS
from tokenwire.coordinator.fleet.liveness import LossReason
from tokenwire.coordinator.fleet.outliers import OutlierSettings
from tokenwire.coordinator.fleet.sampled_tokens import SampledTokens
from tokenwire.coordinator.fleet.session import WorkerSession
from tokenwire.coordinator.fleet.session_listener import SessionListener, SessionState
from tokenwire.coordinator.fleet.session_stats import StatsByModel
from tokenwire.coordinator.fleet.submission import Submission
from tokenwire.coordinator.fleet.transport.base import WorkerTransport
from tokenwire.coordinator.fleet.transport.grpc import GrpcTransport
from tokenwire.errors import InvalidRequest, Unavailable, WorkerDraining
from tokenwire.peer_auth.client import ChannelFactory
from tokenwire.v1 import inference_pb2 as pb
from tokenwire.worker.simulated_engine.engine import SimulatedEngine
from tokenwire.worker.simulated_engine.settings import SimulationSettings


class BreakingOnTokens(Listener):
    """Raises on tokens."""

    def step(self, token_ids: list[int], finish: pb.Finish | None) -> bool:
        """Raise."""
        raise ValueError("cannot process this")


class Satisfied(Listener):
    """Stops after the first tokens."""

    def step(self, token_ids: list[int], finish: pb.Finish | None) -> bool:
        """Record, and stop."""
        super().step(token_ids, finish)
        return True


class Impatient(CircuitBreaker):
    """Never waits."""

    def backoff_s(self) -> float:
        """Return no time."""
        return 0.0


async def test_each_reason_not_to_connect_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """However often it is tried. The process is taken for gone meanwhile."""
    errors: list[Exception] = [Unavailable("no route")] * 3 + [Unavailable("refused"), ValueError("odd")]
    all_tried = asyncio.Event()

    def open_transport(address: str, commands: Requests) -> WorkerTransport:
        if len(errors) == 1:
            all_tried.set()
        raise errors.pop(0) if len(errors) > 1 else errors[0]

    session = WorkerSession("nowhere", "test", accept, open_transport=open_transport)
    session.breaker = Impatient()
    with caplog.at_level(logging.INFO):
        async with running_session(session):
            await all_tried.wait()
            await asyncio.sleep(0)

    assert [(record.levelno, record.message) for record in caplog.records][:3] == [
        (logging.INFO, "worker nowhere: no route"),
        (logging.INFO, "worker nowhere: refused"),
        (logging.ERROR, "session with nowhere failed"),
    ]
    assert not any("odd" in record.message for record in caplog.records)
    assert (session.alive, session.last_error) == (False, "odd")
    assert session.serving == pb.ServingState()


@pytest.mark.parametrize(("reason", "died"), [(pb.FINISH_REASON_ERROR, True), (pb.FINISH_REASON_ABORT, False)])
async def test_a_worker_that_hands_a_request_back_gets_no_more(
    address: str, reason: "pb.FinishReason", died: bool
) -> None:
    """It drains, or its engine died."""

    async def script(requests: Requests, context: SessionContext) -> None:
        await anext(requests)
        await context.write(welcome())
        (slot,) = (await anext(requests)).submit.slots
        await context.write(_frame(slot, [1], pb.Finish(slot=slot, reason=reason, handed_back=True)))
        await anext(requests)

    async with scripted_worker(address, script), ready_session(address) as session:
        listener = Listener()
        session.submit(submission(), [listener])
        await listener.ended.wait()

        assert (session.state, session.engine_died) == (SessionState.DRAINING, died)


async def test_others_have_their_turn_between_the_parts_of_a_large_frame(address: str) -> None:
    """Its tokens come in order, its end with the last ones."""
    turns: list[TurnsOfOthers] = []

    class Timed(Listener):
        def __init__(self) -> None:
            super().__init__()
            self.turns: list[int] = []

        def step(self, token_ids: list[int], finish: pb.Finish | None) -> bool:
            self.turns.append(turns[0].count if turns else 0)
            return super().step(token_ids, finish)

    tokens = list(range(3 * MOST_TOKENS))

    async def script(requests: Requests, context: SessionContext) -> None:
        await anext(requests)
        await context.write(welcome())
        (slot,) = (await anext(requests)).submit.slots
        end = pb.Finish(slot=slot, reason=pb.FINISH_REASON_LENGTH)
        large = pb.StepFrame(slots=[slot], counts=[len(tokens)], token_ids=tokens, finishes=[end])
        await context.write(pb.SessionResponse(frame=large))
        await anext(requests)

    async with scripted_worker(address, script), ready_session(address) as session:
        listener = Timed()
        (slot,) = session.submit(submission(len(tokens)), [listener])
        assert session._slots.allowance[slot] == len(tokens)
        turns.append(TurnsOfOthers())
        before = session._liveness.last_event_at
        await listener.ended.wait()
        assert session._liveness.last_event_at > before  # it lives while its frame is dispatched

    assert listener.token_ids == tokens
    assert len(set(listener.turns)) == 3


async def test_only_tokens_show_that_a_stalled_engine_steps_again(address: str) -> None:
    """An abort is confirmed without a step."""
    goes_on = asyncio.Event()

    class Uncovered(SessionListener[WorkerSession]):
        def is_covered(self, session: WorkerSession) -> bool:
            return False

    async def script(requests: Requests, context: SessionContext) -> None:
        await anext(requests)
        await context.write(welcome())
        one, other = (await anext(requests)).submit.slots
        await context.write(pb.SessionResponse(heartbeat=pb.Heartbeat(stalled_ms=30_000)))
        await context.write(_frame(one, [], pb.Finish(slot=one, reason=pb.FINISH_REASON_ABORT)))
        await goes_on.wait()
        await context.write(_frame(other, [1]))
        await anext(requests)

    async with (
        scripted_worker(address, script),
        running_session(WorkerSession(address, "test", accept, Uncovered())) as session,
    ):
        await until(lambda: session.state is SessionState.READY)
        one, other = Listener(), Listener()
        session.submit(submission(), [one, other])
        await one.ended.wait()
        states = [session.state]
        goes_on.set()
        await other.moved.wait()
        states.append(session.state)

    assert states == [SessionState.STALLED, SessionState.READY]


async def test_a_worker_that_was_lost_is_back_with_its_first_token(address: str) -> None:
    """Not with an abort that it confirms."""
    goes_on = asyncio.Event()

    async def script(requests: Requests, context: SessionContext) -> None:
        await anext(requests)
        await context.write(welcome())
        one, other = (await anext(requests)).submit.slots
        await context.write(_frame(one, [], pb.Finish(slot=one, reason=pb.FINISH_REASON_ABORT)))
        await goes_on.wait()
        await context.write(_frame(other, [1]))
        await anext(requests)

    async with scripted_worker(address, script), running_session(WorkerSession(address, "test", accept)) as session:
        session.breaker.record_loss()
        await until(lambda: session.state is SessionState.READY)
        one, other = Listener(), Listener()
        session.submit(submission(), [one, other])
        await one.ended.wait()
        assert session.breaker.half_open
        goes_on.set()
        await other.moved.wait()
        await until(lambda: not session.breaker.half_open)


@pytest.mark.parametrize("load", [pb.Load(), pb.Load(waiting=1)])
async def test_what_a_worker_starves_ends_with_an_error(address: str, load: pb.Load) -> None:
    """One that may be sent again at once, whoever is to blame; unless the worker is held, and may make no token."""

    async def script(requests: Requests, context: SessionContext) -> None:
        await anext(requests)
        greeting = welcome()
        greeting.welcome.heartbeat_ms = 60_000
        await context.write(greeting)
        await anext(requests)
        await anext(requests)

    def let_pass(session: WorkerSession, is_held: bool, can_go_on: bool = True) -> None:
        for _ in range(30):
            session._starvation.steps += 1
            session.move_starved(OutlierSettings(silence_timeout_s=1), 100.0, is_held, lambda cause: can_go_on)

    async with scripted_worker(address, script), running_session(WorkerSession(address, "test", accept)) as session:
        await until(lambda: session.state is SessionState.READY)
        listener = Listener()
        session.submit(submission(), [listener])
        session.workload.load = load
        let_pass(session, is_held=True)
        if load.waiting:
            let_pass(session, is_held=False, can_go_on=False)
        assert listener.error is None

        let_pass(session, is_held=False)

    assert isinstance(listener.error, Unavailable)
    assert "sent no token of this reply" in listener.error.message
    assert (isinstance(listener.error, WorkerDraining), listener.error.retry_after_s) == (bool(load.waiting), 1)


def test_an_older_state_of_a_worker_changes_nothing() -> None:
    """A response and an event may overtake each other."""
    session = WorkerSession("nowhere", "test", accept)
    session.model = pb.Model(names=["m"])

    session.on_serving_state(pb.ServingState(revision=2, paused=True))
    session.on_serving_state(pb.ServingState(revision=1))

    assert (session.serving.revision, session.serving.paused) == (2, True)


class Stepless(GrpcTransport):
    """Whose frames are not steps, as those of plain vLLM servers."""

    sends_steps = False


@pytest.mark.parametrize(("transport", "gaps"), [(GrpcTransport, 3), (Stepless, 0)])
async def test_statistics_are_kept_by_model(address: str, transport: type[GrpcTransport], gaps: int) -> None:
    """Gaps between tokens say nothing where frames are not steps, and only the transport knows that."""

    async def script(requests: Requests, context: SessionContext) -> None:
        await anext(requests)
        await context.write(welcome())
        (slot,) = (await anext(requests)).submit.slots
        for token_id in (1, 2):
            await context.write(_frame(slot, [token_id]))
        await context.write(_frame(slot, [3], pb.Finish(slot=slot)))
        await anext(requests)

    stats: StatsByModel = {}
    async with (
        scripted_worker(address, script),
        running_session(
            WorkerSession(
                address,
                "test",
                accept,
                open_transport=partial(transport, ChannelFactory()),
                stats_by_model=stats,
            )
        ) as session,
    ):
        await until(lambda: session.state is SessionState.READY)
        assert (session.alive, session.engine_died) == (True, False)
        listener = Listener()
        session.submit(submission(), [listener])
        await listener.ended.wait()

    assert list(stats) == ["scripted"]
    assert sum(stats["scripted"].gaps) == gaps


async def test_a_worker_whose_engine_hangs_is_taken_for_dead(address: str) -> None:
    """Though its process is there, another one takes over."""

    async def script(requests: Requests, context: SessionContext) -> None:
        await anext(requests)
        await context.write(welcome())
        await context.write(pb.SessionResponse(heartbeat=pb.Heartbeat(stalled_ms=30_000)))
        await anext(requests)

    async with scripted_worker(address, script), running_session(WorkerSession(address, "test", accept)) as session:
        await until(lambda: session.losses[LossReason.STALLED] == 1)
        assert session.alive is False


async def test_what_a_worker_reports_is_passed_on(address: str) -> None:
    """KV events, and that it survived a request: with the session that they came in."""
    got: asyncio.Queue[tuple[WorkerSession, object]] = asyncio.Queue()

    class Recording(SessionListener[WorkerSession]):
        def on_kv_events(self, session: WorkerSession, change: pb.CacheChange) -> None:
            got.put_nowait((session, list(change.stored)))

        def on_survived(self, session: WorkerSession, submission: Submission) -> None:
            got.put_nowait((session, submission.request_id))

    async def script(requests: Requests, context: SessionContext) -> None:
        await anext(requests)
        await context.write(welcome())
        await context.write(pb.SessionResponse(cache=pb.CacheChange(stored=[7])))
        (slot,) = (await anext(requests)).submit.slots
        await context.write(_frame(slot, [1], pb.Finish(slot=slot, reason=pb.FINISH_REASON_STOP)))
        await anext(requests)

    async with (
        scripted_worker(address, script),
        running_session(WorkerSession(address, "test", accept, Recording())) as session,
    ):
        assert await asyncio.wait_for(got.get(), 10) == (session, [7])
        session.submit(submission(), [Listener()])
        assert await asyncio.wait_for(got.get(), 10) == (session, "request")


async def test_a_worker_is_proven_once_it_has_served_some_requests(address: str) -> None:
    """Until its session ends: after that it may be another process, or no longer serve anybody."""

    async def script(requests: Requests, context: SessionContext) -> None:
        await anext(requests)
        await context.write(welcome())
        for _ in range(LEAST_SERVED):
            (slot,) = (await anext(requests)).submit.slots
            await context.write(_frame(slot, [1], pb.Finish(slot=slot, reason=pb.FINISH_REASON_STOP)))
        await anext(requests)

    async with scripted_worker(address, script), running_session(WorkerSession(address, "test", accept)) as session:
        session.breaker = Impatient()
        await until(lambda: session.state is SessionState.READY)
        for _ in range(LEAST_SERVED):
            assert session.unproven_at == address
            served = Listener()
            session.submit(submission(), [served])
            await served.ended.wait()
        assert not session.unproven_at
        session.submit(submission(), [Listener()])
        await until(lambda: session.unproven_at == address)


async def test_a_request_runs_to_its_end(address: str) -> None:
    """Each listener gets the prefill info, its tokens and one finish; then both slots are free."""
    async with running_worker(address) as worker, ready_session(address) as session:
        first, second = Listener(), Listener()
        session.submit(submission(max_tokens=20), [first, second])
        assert session.open_slots == 2

        await first.ended.wait()
        await second.ended.wait()

        for listener in (first, second):
            assert len(listener.prefills) == 1
            assert len(listener.token_ids) == 20
            assert listener.finish is not None
            assert listener.finish.reason == pb.FINISH_REASON_LENGTH
        assert session.open_slots == 0
        assert worker.server_info().open_slots == 0


@pytest.mark.parametrize("beside", [True, False])
async def test_each_token_of_a_recorded_sequence_has_a_log_probability(address: str, beside: bool) -> None:
    """Which older workers send as rows."""
    async with running_worker(address), ready_session(address) as session:
        session.capabilities.sampled_logprobs = beside
        recorded, listener = submission(max_tokens=5), Listener()
        recorded.sampled = [SampledTokens(len(recorded.prompt_token_ids))]
        session.submit(recorded, [listener])
        await listener.ended.wait()

    logprobs = recorded.sampled[0].logprobs(5)
    assert logprobs is not None
    assert len(logprobs) == 5
    assert bool(listener.rows) == (not beside)


async def test_listeners_get_new_weight_versions_once(address: str) -> None:
    """Each gets the version before its first token, and again only when it changes, before the next token."""
    engine = SimulatedEngine(SimulationSettings(step_ms=5))
    async with running_worker(address, engine), ready_session(address) as session:
        listener = Listener()
        session.submit(submission(max_tokens=60), [listener])
        await listener.moved.wait()
        await engine.set_weight_version("v2")
        await until(lambda: len(listener.versions) > 1)
        later = Listener()
        session.submit(submission(max_tokens=5), [later])
        await listener.ended.wait()
        await later.ended.wait()

    (_, first), (position, second) = listener.versions
    assert (first, second) == ("default", "v2")
    assert 0 < position < 60
    assert later.versions == [(0, "v2")]


async def test_requests_do_not_mix(address: str) -> None:
    """Many requests in one session: each gets the tokens of its own prompt, as if it were alone."""
    async with running_worker(address, step_ms=0) as _, ready_session(address) as session:
        alone, together = {}, {}
        for seed in range(10):
            alone[seed] = Listener()
            session.submit(_seeded(seed), [alone[seed]])
            await alone[seed].ended.wait()
        for seed in range(10):
            together[seed] = Listener()
            session.submit(_seeded(seed), [together[seed]])
        for seed in range(10):
            await together[seed].ended.wait()

        assert {seed: it.token_ids for seed, it in together.items()} == {s: it.token_ids for s, it in alone.items()}
        assert len({tuple(listener.token_ids) for listener in together.values()}) == 10


def _seeded(seed: int) -> Submission:
    submit = submission(max_tokens=10 + seed)
    submit.sampling_params.seed = seed
    return submit


async def test_a_slot_may_get_as_many_tokens_as_were_asked_for(address: str) -> None:
    """By the submission, or else by its parameters, or else as many as the model has room for."""
    asked = pb.SamplingParams(max_tokens=7)

    async with running_worker(address), ready_session(address) as session:
        for submit in (
            Submission(sampling_params=asked, max_tokens=3),
            Submission(sampling_params=asked),
            Submission(),
        ):
            session.submit(submit, [Listener()])
        assert session.model is not None
        assert session._slots.allowance == [3, 7, session.model.max_model_len]


async def test_the_slots_are_set_in_what_is_sent_alone(address: str) -> None:
    """A submit may be sent again to another worker, where it gets other slots."""

    async def script(requests: Requests, context: SessionContext) -> None:
        await anext(requests)
        await context.write(welcome())
        for token_id in (1, 2):
            await context.write(_frame((await anext(requests)).submit.slots[0], [token_id]))
        await anext(requests)

    async with scripted_worker(address, script), ready_session(address) as session:
        listeners, submit = [Listener(), Listener()], submission()
        slots = [session.submit(submit, [listener]) for listener in listeners]
        for listener in listeners:
            await listener.moved.wait()

    assert ([listener.token_ids for listener in listeners], slots) == ([[1], [2]], [[0], [1]])
    assert submit == submission()


async def test_an_aborted_slot_is_free_only_after_its_terminal_event(address: str) -> None:
    """After an abort the listener is not called, and the slot stays taken until the worker has ended it."""
    let_go = asyncio.Event()

    async def script(requests: Requests, context: SessionContext) -> None:
        await anext(requests)
        await context.write(welcome())
        submit = (await anext(requests)).submit
        await context.write(_frame(submit.slots[0], [1]))
        aborted = (await anext(requests)).abort.slots
        await context.write(_frame(aborted[0], [2]))
        second = (await anext(requests)).submit
        await context.write(_frame(second.slots[0], [3]))
        await let_go.wait()
        await context.write(_frame(aborted[0], [], pb.Finish(slot=aborted[0], reason=pb.FINISH_REASON_ABORT)))
        third = (await anext(requests)).submit
        await context.write(_frame(third.slots[0], [4]))
        await anext(requests)

    async with scripted_worker(address, script), ready_session(address) as session:
        first, second, third = Listener(), Listener(), Listener()
        (slot,) = session.submit(submission(), [first])
        await first.moved.wait()

        session.abort([slot])
        (other,) = session.submit(submission(), [second])
        await second.moved.wait()
        assert (slot, other, session.open_slots) == (0, 1, 2)
        let_go.set()
        await until(lambda: session.open_slots == 1)

        assert session.submit(submission(), [third]) == [slot]
        await third.moved.wait()
        assert (first.token_ids, second.token_ids, third.token_ids) == ([1], [3], [4])
        assert not first.ended.is_set()


def _frame(slot: int, token_ids: list[int], *finishes: pb.Finish) -> pb.SessionResponse:
    slots = [slot] if token_ids else []
    return pb.SessionResponse(frame=pb.StepFrame(slots=slots, token_ids=token_ids, finishes=finishes))


async def test_a_listener_that_stops_is_aborted(address: str) -> None:
    """The worker stops the sequence; the slot is freed by its terminal event."""
    async with running_worker(address) as worker, ready_session(address) as session:
        listener = Satisfied()
        session.submit(submission(max_tokens=20_000), [listener])

        await listener.moved.wait()
        await until(lambda: session.open_slots == 0)

        assert listener.finish is None
        assert worker.server_info().generated_tokens < 1000


async def test_a_refusal_reaches_every_listener_of_the_request(address: str) -> None:
    """A request that the engine rejects fails all listeners with the engine's message, and frees their slots."""
    async with running_worker(address), ready_session(address) as session:
        first, second, other = Listener(), Listener(), Listener()
        wrong = replace(submission(), prompt_token_ids=[10**6])
        session.submit(wrong, [first, second])
        session.submit(submission(), [other])

        await other.ended.wait()

        assert other.finish is not None
        for listener in (first, second):
            assert isinstance(listener.error, InvalidRequest)
            assert "out of vocabulary" in listener.error.message
            assert listener.token_ids == []
        assert session.open_slots == 0


@pytest.mark.parametrize("max_tokens", [1, 20_000])
async def test_a_listener_that_raises_fails_only_its_own_slot(
    address: str, max_tokens: int, caplog: pytest.LogCaptureFixture
) -> None:
    """A reply that cannot be processed fails alone, in mid-stream or with its last token; the session continues."""
    async with running_worker(address), ready_session(address) as session:
        broken, full = BreakingOnTokens(), Listener()
        session.submit(submission(max_tokens), [broken])
        session.submit(submission(max_tokens=50), [full])

        await full.ended.wait()
        await until(lambda: session.open_slots == 0)

        assert full.finish is not None
        assert len(full.token_ids) == 50
        assert broken.error is not None
        assert "cannot process this" in broken.error.message
        assert session.state is SessionState.READY
    assert [record.levelno for record in caplog.records if "failed" in record.message] == [logging.ERROR]


async def test_the_load_is_updated_by_frames(address: str) -> None:
    """A session does not query its worker for it."""
    async with running_worker(address, max_num_seqs=1) as _, ready_session(address) as session:
        first, second = Listener(), Listener()
        session.submit(submission(max_tokens=20_000), [first])
        session.submit(submission(max_tokens=20_000), [second])

        await until(lambda: (session.workload.load.running, session.workload.load.waiting) == (1, 1))


async def test_a_slot_belongs_to_its_listener_until_it_has_ended(address: str) -> None:
    """A late abort must not affect the slot's next sequence."""
    async with running_worker(address), ready_session(address) as session:
        first, second = Listener(), Listener()
        (slot,) = session.submit(submission(), [first])
        assert session.listens(slot, first)
        await first.ended.wait()

        assert session.submit(submission(), [second]) == [slot]
        assert not session.listens(slot, first)
        assert session.listens(slot, second)
        assert not session.listens(99, first)
