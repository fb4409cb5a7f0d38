"""Tests of the pool of forked processes, with real ones."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psutil
import pytest

from tests.workers import until
from tokenwire.errors import EngineFailed, InvalidRequest
from tokenwire.worker.media.processor_pool import ProcessorPool, default_processes

JOBS = "tests.worker.media.jobs"


@asynccontextmanager
async def pool_of_processes(
    configuration: bytes = b"config", processes: int = 2, seconds: int = 60
) -> AsyncIterator[ProcessorPool]:
    """Run a pool."""
    pool = ProcessorPool(JOBS, configuration, processes, seconds)
    pool.start()
    try:
        yield pool
    finally:
        await pool.stop()


async def test_jobs_run_in_forks_of_the_process_that_loaded() -> None:
    """Jobs have what was loaded once, in another process than the one that loaded it; a process is used again."""
    async with pool_of_processes() as pool:
        assert await pool.run(b"job") == (b"config job", None)
        loader, worker = (await pool.run(b"who"))[0].split()
        assert loader != worker
        assert (await pool.run(b"who"))[0].split() == [loader, worker]
        assert pool.jobs == 3
        assert pool.busy_s > 0


async def test_buffers_come_in_shared_memory() -> None:
    """Large results are not copied through the socket; they are one after the other."""
    async with pool_of_processes() as pool:
        answer, memory = await pool.run(b"large")
        assert answer == b"large"
        assert memory is not None
        assert memory[:] == bytes(range(256)) * 40_000 + b"end"


@pytest.mark.parametrize("job", [b"crash", b"raise"])
async def test_a_job_that_kills_its_process_fails_alone(job: bytes) -> None:
    """Other jobs that run at the same time succeed, and so do later ones."""
    async with pool_of_processes() as pool:
        failing, other = pool.run(job), pool.run(b"job")
        results = await asyncio.gather(failing, other, return_exceptions=True)
        assert isinstance(results[0], InvalidRequest)
        assert results[1] == (b"config job", None)
        assert await pool.run(b"again") == (b"config again", None)
        assert pool.died == 1
        assert pool.waiting == 0


async def test_a_job_without_end_is_ended() -> None:
    """A process that takes too long for a job is ended, and the job fails."""
    async with pool_of_processes(seconds=1) as pool:
        with pytest.raises(InvalidRequest, match="died"):
            await pool.run(b"hang")


async def test_processors_that_cannot_be_loaded_fail_their_jobs_with_the_reason() -> None:
    """The error of loading is the one of every job."""
    async with pool_of_processes(b"broken") as pool:
        for _ in range(2):
            with pytest.raises(EngineFailed, match="this configuration is broken"):
                await pool.run(b"job")


async def test_no_process_is_left_after_a_stop() -> None:
    """The one that loaded and its forks end with the pool."""
    async with pool_of_processes() as pool:
        found = [psutil.Process(int(each)) for each in (await pool.run(b"who"))[0].split()]
    _, alive = await asyncio.to_thread(psutil.wait_procs, found, 30)
    assert alive == []
    with pytest.raises(EngineFailed):
        await pool.run(b"job")


async def test_a_stop_waits_for_no_job() -> None:
    """One that runs fails, and its process ends with the others."""
    async with pool_of_processes() as pool:
        process = psutil.Process(int((await pool.run(b"who"))[0].split()[1]))
        running = asyncio.create_task(pool.run(b"hang"))
        await until(lambda: not pool._idle)  # it has the only process that there is
    with pytest.raises(EngineFailed, match="were stopped"):
        await running
    _, alive = await asyncio.to_thread(psutil.wait_procs, [process], 30)
    assert alive == []


def test_there_is_a_process_at_least() -> None:
    """Also on a machine with one CPU."""
    assert 1 <= default_processes() <= 8
