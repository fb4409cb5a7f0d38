"""A protocol error of a worker ends its session: its requests are lost, and none of them hangs."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tests.coordinator.fleet.sessions import ready_session
from tests.workers import (
    PROMPT,
    Listener,
    SessionContext,
    accept,
    running_worker,
    scripted_worker,
    submission,
    unix_address,
    until,
    welcome,
)
from tokenwire.coordinator.fleet.admission.queue import AdmissionQueue
from tokenwire.coordinator.fleet.admission.settings import AdmissionSettings
from tokenwire.coordinator.fleet.failover.failover import Failover
from tokenwire.coordinator.fleet.failover.settings import FailoverSettings
from tokenwire.coordinator.fleet.pool import WorkerPool
from tokenwire.coordinator.fleet.submission import Submission
from tokenwire.errors import WorkerLost
from tokenwire.v1 import inference_pb2 as pb

Requests = AsyncIterator[pb.SessionRequest]
Event = Callable[[int], pb.SessionResponse]


def frame(**fields: object) -> pb.SessionResponse:
    """Return an event with a frame."""
    return pb.SessionResponse(frame=pb.StepFrame(**fields))  # type: ignore[arg-type]


def finish_event(slot: int) -> pb.SessionResponse:
    """Return the end of a slot."""
    return frame(finishes=[pb.Finish(slot=slot, reason=pb.FINISH_REASON_LENGTH)])


def refusal(*slots: int) -> pb.SessionResponse:
    """Return a refusal of slots."""
    return pb.SessionResponse(refusal=pb.Refusal(slots=slots, code=pb.REFUSAL_CODE_INVALID, message="no"))


@pytest.mark.parametrize(
    "wrong",
    [
        lambda slot: finish_event(slot + 1),
        lambda slot: frame(slots=[slot], token_ids=[1, 2]),
        lambda slot: frame(slots=[slot + 1], token_ids=[1]),
        lambda slot: refusal(slot + 1),
        lambda slot: refusal(),
        lambda slot: refusal(slot, slot),
        lambda slot: frame(slots=[slot], counts=[2**16], token_ids=[1] * 2**16),
        lambda slot: frame(slots=[slot], token_ids=[1], weight_version="v" * 1000),
        lambda slot: frame(finishes=[pb.Finish(slot=slot, reason=pb.FINISH_REASON_ERROR, error_message="e" * 100_000)]),
        lambda slot: welcome(),
    ],
    ids=[
        "finish",
        "lengths",
        "tokens",
        "refusal",
        "empty refusal",
        "two refusals",
        "too many tokens",
        "a long label",
        "a long error",
        "welcome",
    ],
)
async def test_a_worker_that_violates_the_protocol_is_lost(tmp_path: Path, wrong: Event) -> None:
    """Every request of the session fails with the reason; then the coordinator reconnects."""
    sessions = 0

    async def script(requests: Requests, context: SessionContext) -> None:
        nonlocal sessions
        sessions += 1
        await anext(requests)
        await context.write(welcome())
        submission = (await anext(requests)).submit
        await context.write(wrong(submission.slots[0]))
        await anext(requests)

    address = unix_address(tmp_path)
    async with scripted_worker(address, script), ready_session(address) as session:
        listener = Listener()
        session.submit(submission(), [listener])

        await listener.ended.wait()

        assert isinstance(listener.error, WorkerLost)
        assert session.open_slots == 0
        await until(lambda: sessions == 2)


@pytest.mark.parametrize("foreign", [1, 4_000_000_000], ids=["of another request", "not open"])
async def test_media_are_missed_by_the_request_that_has_them(tmp_path: Path, foreign: int) -> None:
    """It is not sent again for slots of others: these would get its tokens."""

    async def script(requests: Requests, context: SessionContext) -> None:
        await anext(requests)
        await context.write(welcome())
        for _ in range(2):
            await anext(requests)
        await context.write(
            pb.SessionResponse(refusal=pb.Refusal(slots=[0, foreign], code=pb.REFUSAL_CODE_MEDIA_MISSING))
        )
        await anext(requests)

    address = unix_address(tmp_path)
    async with scripted_worker(address, script), ready_session(address) as session:
        listeners = [Listener(), Listener()]
        for listener in listeners:
            session.submit(submission(), [listener])

        for listener in listeners:
            await listener.ended.wait()

        assert [type(each.error) for each in listeners] == [WorkerLost] * 2


async def test_a_slot_that_finishes_twice_is_not_reused(tmp_path: Path) -> None:
    """The second finish ends the session before another request can get the slot."""

    async def script(requests: Requests, context: SessionContext) -> None:
        await anext(requests)
        await context.write(welcome())
        (slot,) = (await anext(requests)).submit.slots
        await context.write(finish_event(slot))
        await context.write(finish_event(slot))
        async for _ in requests:
            pass

    address = unix_address(tmp_path)
    async with scripted_worker(address, script), ready_session(address) as session:
        first = Listener()
        session.submit(submission(), [first])
        await first.ended.wait()

        await until(lambda: "not open" in session.last_error)

        assert first.finish is not None
        assert session.open_slots == 0


async def test_requests_of_a_worker_that_violates_the_protocol_are_resumed(tmp_path: Path) -> None:
    """Its tokens count up to the violation; the client sees no difference."""

    async def script(requests: Requests, context: SessionContext) -> None:
        await anext(requests)
        await context.write(welcome(names=("simulated",)))
        (slot,) = (await anext(requests)).submit.slots
        await context.write(frame(slots=[slot], token_ids=[65]))
        await context.write(finish_event(slot + 1))
        async for _ in requests:
            pass

    wrong, right = unix_address(tmp_path, "wrong"), unix_address(tmp_path, "right")
    pool = WorkerPool("test", accept)
    failover = Failover(AdmissionQueue(pool, AdmissionSettings()), FailoverSettings(), pool)
    async with scripted_worker(wrong, script), running_worker(right):
        pool.update([wrong])
        await until(pool.is_ready)
        listener = Listener()
        greedy = pb.SamplingParams(temperature=0.0)
        submission = Submission(prompt_token_ids=PROMPT, sampling_params=greedy, max_tokens=20)
        pool.update([wrong, right])
        await until(lambda: pool.serves(right))
        holder = next(session for session in pool.sessions if session.address == right)
        holder.retire()
        failover.submit("simulated", submission, [listener])
        holder.readmit()

        await listener.ended.wait()

        assert (listener.token_ids[0], len(listener.token_ids)) == (65, 20)
        failover.stop()
        await pool.stop()
