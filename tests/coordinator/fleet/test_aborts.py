"""Aborts by id apply to requests of all coordinators on all workers."""

from pathlib import Path

import pytest

from tests.coordinator.fleet.sessions import ready_session
from tests.workers import Listener, accept, running_worker, submission, unix_address
from tokenwire.coordinator.fleet.aborts import FleetAborts
from tokenwire.coordinator.fleet.session import WorkerSession
from tokenwire.errors import Unavailable
from tokenwire.v1 import inference_pb2 as pb


async def running_request(session: WorkerSession, request_id: str, sequences: int = 1) -> list[Listener]:
    """Start a request that does not end by itself, and wait for its first tokens."""
    listeners = [Listener() for _ in range(sequences)]
    session.submit(submission(100_000, request_id), listeners)
    for listener in listeners:
        await listener.moved.wait()
    return listeners


async def aborted(*listeners: Listener) -> bool:
    """Wait for sequences to end; return whether all were aborted, with their tokens so far."""
    for listener in listeners:
        await listener.ended.wait()
    return all(each.finish and each.finish.reason == pb.FINISH_REASON_ABORT and each.token_ids for each in listeners)


async def test_ids_are_aborted_on_all_workers(tmp_path: Path) -> None:
    """A request of another coordinator, on any worker, ends; each of its sequences counts; others continue."""
    first, second = (unix_address(tmp_path, name) for name in "ab")
    async with (
        running_worker(first, max_model_len=200_000),
        running_worker(second, max_model_len=200_000),
        ready_session(first) as theirs,
        ready_session(first) as one,
        ready_session(second) as two,
    ):
        wanted = await running_request(theirs, "x", 2)
        spared = await running_request(two, "y")

        count = await FleetAborts(lambda: [one, two]).by_id(["x", "unknown"])

        assert await aborted(*wanted)
        assert count == 2
        assert not spared[0].ended.is_set()


async def test_everything_is_aborted(tmp_path: Path) -> None:
    """All requests of all coordinators on all workers."""
    first, second = (unix_address(tmp_path, name) for name in "ab")
    async with (
        running_worker(first, max_model_len=200_000),
        running_worker(second, max_model_len=200_000),
        ready_session(first) as theirs,
        ready_session(first) as one,
        ready_session(second) as two,
    ):
        listeners = [
            *await running_request(theirs, "x"),
            *await running_request(one, "y"),
            *await running_request(two, "z"),
        ]

        assert await FleetAborts(lambda: [one, two]).everything() == 3
        assert await aborted(*listeners)


async def test_a_disconnected_worker_is_skipped(tmp_path: Path) -> None:
    """The other workers are called; without any it is an error."""
    address = unix_address(tmp_path)
    away = WorkerSession(unix_address(tmp_path, "away"), "test", accept)
    async with running_worker(address, max_model_len=200_000), ready_session(address) as session:
        listeners = await running_request(session, "x")

        assert await FleetAborts(lambda: [away, session]).by_id(["x"]) == 1
        assert await aborted(*listeners)
        with pytest.raises(Unavailable):
            await FleetAborts(lambda: [away]).everything()
