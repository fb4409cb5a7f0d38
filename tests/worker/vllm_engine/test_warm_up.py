"""The warm-up runs each kind of request before the worker serves, and leaves no trace."""

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace

import pytest

from tests.lazily import Lazily
from tokenwire.errors import EngineFailed, InvalidRequest
from tokenwire.worker.engine.interface import EngineSequence, Step
from tokenwire.worker.vllm_engine.driver import StepQueue, VllmRequest, failed, handed_back_error

warm_up = Lazily("tokenwire.worker.vllm_engine.warm_up")

pytestmark = pytest.mark.engine


class StartedLlm:
    """Stands for AsyncLLM: its loggers, its output handler and its cache."""

    def __init__(self, ranks: int = 1) -> None:
        self.loggers = self.logger_manager = object()
        self.output_handler: asyncio.Task[None] | None = None
        self.cached = True
        self.vllm_config = SimpleNamespace(
            parallel_config=SimpleNamespace(
                data_parallel_size=ranks, data_parallel_size_local=1, local_engines_only=False
            )
        )

    async def reset_prefix_cache(self) -> None:
        """Empty the cache."""
        self.cached = False


class AnsweringDriver:
    """A driver that ends every request at once, refuses one kind, and may die."""

    def __init__(self, llm: StartedLlm, refused: str = "", dies: bool = False) -> None:
        self.ran: list[tuple[str, int | None]] = []
        self.counted = False
        """Whether vLLM's loggers saw any request."""
        self._llm, self._refused, self._dies = llm, refused, dies
        self._queue = StepQueue()

    async def start(self) -> None:
        """Take over vLLM's output handler."""
        self._llm.output_handler = asyncio.create_task(asyncio.Event().wait())  # type: ignore[arg-type]

    async def submit(self, vllm_request: VllmRequest, sequences: list[EngineSequence]) -> None:
        """End the request, or refuse it."""
        self.counted |= self._llm.logger_manager is not None
        if vllm_request.request_id == self._refused:
            raise InvalidRequest("not by this engine")
        self.ran.append((vllm_request.request_id, vllm_request.inputs["data_parallel_rank"]))
        (sequence,) = sequences
        self._queue.put(Step(finishes=[(sequence, handed_back_error("died") if self._dies else failed("once"))]))
        if self._dies:
            self._queue.close(EngineFailed("died"))

    async def abort(self, sequences: list[EngineSequence]) -> None:
        """Do nothing: nothing runs."""

    def steps(self) -> AsyncIterator[Step]:
        """Yield the ends."""
        return self._queue.drain()

    async def stop(self) -> None:
        """End the steps."""
        self._queue.close()


async def test_every_kind_runs_on_every_rank_and_none_is_counted() -> None:
    """Afterwards the cache is empty, the loggers are back, and another driver can read the output."""
    llm = StartedLlm(ranks=2)
    driver = AnsweringDriver(llm)
    await warm_up.warm_up(llm, driver)

    assert {rank for _, rank in driver.ran} == {0, 1}
    assert {name for name, rank in driver.ran if rank == 0} == {name for name, rank in driver.ran if rank == 1}
    assert {"warm-up sampling", "warm-up json", "warm-up prompt log-probabilities"} <= {name for name, _ in driver.ran}
    assert not driver.counted
    assert not llm.cached
    assert (llm.logger_manager, llm.output_handler) == (llm.loggers, None)


async def test_a_kind_that_the_engine_refuses_is_skipped() -> None:
    """The others still run; a request that fails in the engine was run too."""
    llm = StartedLlm()
    driver = AnsweringDriver(llm, refused="warm-up penalties")
    await warm_up.warm_up(llm, driver)

    assert ("warm-up penalties", None) not in driver.ran
    assert len(driver.ran) > 5


async def test_an_engine_that_dies_fails_the_start() -> None:
    """Its sequences are handed back, which ends no warm-up; the loggers are back all the same."""
    llm = StartedLlm()
    with pytest.raises(EngineFailed, match="died"):
        await warm_up.warm_up(llm, AnsweringDriver(llm, dies=True))
    assert llm.logger_manager is llm.loggers
