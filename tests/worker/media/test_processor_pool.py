"""Tests of the pool of forked processes, with real ones."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import psutil
import pytest

from tests.workers import until
from tokenwire.errors import EngineFailed, InvalidRequest
from tokenwire.worker.media.processor_pool import ProcessorPool, default_processes

JOBS = "tests.worker.media.jobs"


@asynccontextmanager
async def pool_of_processes(
    configuration: bytes = b"config", processes: int = 2, seconds: int = 20
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
        assert await pool.run(lambda: b"job") == (b"config job", None)
        loader, worker = (await pool.run(lambda: b"who"))[0].split()
        assert loader != worker
        assert (await pool.run(lambda: b"who"))[0].split() == [loader, worker]
        assert pool.jobs == 3
        assert pool.busy_s > 0


async def test_buffers_come_in_shared_memory() -> None:
    """Large results are not copied through the socket; they are one after the other."""
    async with pool_of_processes() as pool:
        answer, memory = await pool.run(lambda: b"large")
        assert answer == b"large"
        assert memory is not None
        assert memory[:] == bytes(range(256)) * 40_000 + b"end"


@pytest.mark.parametrize("job", [b"crash", b"raise"])
async def test_a_job_that_kills_its_process_fails_alone(job: bytes) -> None:
    """Other jobs that run at the same time succeed, and so do later ones."""
    async with pool_of_processes() as pool:
        failing, other = pool.run(lambda: job), pool.run(lambda: b"job")
        results = await asyncio.gather(failing, other, return_exceptions=True)
        assert isinstance(results[0], InvalidRequest)
        assert results[1] == (b"config job", None)
        assert await pool.run(lambda: b"again") == (b"config again", None)
        assert pool.died == 1
        assert pool.waiting == 0


@pytest.mark.parametrize("job", [b"busy", b"hang"])
async def test_a_job_without_end_is_ended(job: bytes) -> None:
    """A process that takes too long for a job is ended, by its CPU time or by the clock, and the job fails."""
    async with pool_of_processes(seconds=1) as pool:
        with pytest.raises(InvalidRequest, match="took too long"):
            await pool.run(lambda: job)


async def test_processors_that_cannot_be_loaded_fail_their_jobs_with_the_reason() -> None:
    """The error of loading is the one of every job."""
    async with pool_of_processes(b"broken") as pool:
        for _ in range(2):
            with pytest.raises(EngineFailed, match="this configuration is broken"):
                await pool.run(lambda: b"job")


async def test_who_waits_for_the_processors_goes_on_once_they_are_loaded(tmp_path: Path) -> None:
    """A worker that is ready has them: no first picture waits for them."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    async with pool_of_processes(str(pipe).encode()) as pool:
        waiting = asyncio.create_task(pool.loaded())
        with await asyncio.to_thread(pipe.open, "wb") as loading:  # opened once it is read from
            assert not waiting.done()
            loading.write(b"loaded")
        await waiting
        assert await pool.run(lambda: b"job") == (b"loaded job", None)


async def test_who_waits_for_processors_that_cannot_be_loaded_goes_on_too() -> None:
    """Their worker serves text."""
    async with pool_of_processes(b"broken") as pool:
        await pool.loaded()
        with pytest.raises(EngineFailed):
            await pool.run(lambda: b"job")


async def test_no_process_is_left_after_a_stop() -> None:
    """The one that loaded and its forks end with the pool."""
    async with pool_of_processes() as pool:
        found = [psutil.Process(int(each)) for each in (await pool.run(lambda: b"who"))[0].split()]
    _, alive = await asyncio.to_thread(psutil.wait_procs, found, 30)
    assert alive == []
    with pytest.raises(EngineFailed):
        await pool.run(lambda: b"job")


async def test_a_stop_waits_for_no_job() -> None:
    """One that runs fails, and its process ends with the others."""
    async with pool_of_processes() as pool:
        process = psutil.Process(int((await pool.run(lambda: b"who"))[0].split()[1]))
        running = asyncio.create_task(pool.run(lambda: b"hang"))
        await until(lambda: not pool._idle)  # it has the only process that there is
    with pytest.raises(EngineFailed, match="were stopped"):
        await running
    _, alive = await asyncio.to_thread(psutil.wait_procs, [process], 30)
    assert alive == []


def test_there_is_a_process_at_least() -> None:
    """Also on a machine with one CPU."""
    assert 1 <= default_processes() <= 8


class Line:
    """Jobs for a pool of one process that is busy; the first letter of a job is its tenant."""

    def __init__(self, pool: ProcessorPool) -> None:
        self.pool = pool
        self.taken: list[str] = []
        self.waiting: dict[str, asyncio.Task[object]] = {}

    async def join(self, *names: str) -> None:
        """Let jobs wait, one after the other."""
        for name in names:
            self.waiting[name] = asyncio.create_task(self.pool.run(partial(self._job, name), name[0]))
            await asyncio.sleep(0)

    async def end(self) -> None:
        """Wait for all."""
        await asyncio.gather(*self.waiting.values(), return_exceptions=True)

    def _job(self, name: str) -> bytes:
        self.taken.append(name)
        return name.encode()


@asynccontextmanager
async def line_behind_a_job() -> AsyncIterator[Line]:
    """Run a pool whose processes have jobs until the context ends, and the others after that."""
    async with pool_of_processes(processes=1) as pool:
        line = Line(pool)
        await pool.run(lambda: b"job")
        async with pool._turns.turn("busy"), pool._turns.turn("busy too"):
            yield line
        await line.end()


async def test_jobs_that_wait_hold_nothing() -> None:
    """Their bytes are asked for when a process takes them."""
    async with line_behind_a_job() as line:
        await line.join("a1", "a2")
        assert (line.taken, line.pool.waiting) == ([], 2)
    assert line.taken == ["a1", "a2"]


async def test_jobs_of_which_nobody_waits_leave_the_line() -> None:
    """They are never run, nor counted as such."""
    async with line_behind_a_job() as line:
        await line.join("a1", "a2", "a3")
        line.waiting["a2"].cancel()
        await asyncio.gather(line.waiting["a2"], return_exceptions=True)
        assert line.pool.waiting == 2
    assert line.taken == ["a1", "a3"]
    assert line.pool.jobs == 3


async def test_tenants_take_turns() -> None:
    """The only job of one waits for one of another's, not for all that came before it."""
    async with line_behind_a_job() as line:
        await line.join("a1", "a2", "a3", "b1", "a4", "c1")
    assert line.taken == ["a1", "b1", "c1", "a2", "a3", "a4"]


async def test_beside_a_tenant_that_has_all_processes_one_more_runs_jobs_of_others() -> None:
    """However long its own take."""
    async with pool_of_processes(processes=1) as pool:
        line = Line(pool)
        await pool.run(lambda: b"job")
        async with pool._turns.turn("a"):
            await line.join("a1", "b1")
            await line.waiting["b1"]
            assert line.taken == ["b1"]
        await line.end()


async def test_a_job_that_has_become_impossible_takes_no_process() -> None:
    """Its error is the one of who asks for it, and the next job runs."""

    def gone() -> bytes:
        raise ValueError("gone")

    async with pool_of_processes(processes=1) as pool:
        with pytest.raises(ValueError, match="gone"):
            await pool.run(gone)
        assert await pool.run(lambda: b"job") == (b"config job", None)
        assert pool.jobs == 1
