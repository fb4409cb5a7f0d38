"""Runs requests that compile or allocate on first use before the worker serves; none is counted or cached."""

import logging
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

from vllm.inputs import tokens_input

from tokenwire.errors import EngineFailed, TokenwireError
from tokenwire.v1 import inference_pb2 as pb
from tokenwire.worker.engine.frame_buffer import FrameBuffer
from tokenwire.worker.engine.interface import EngineSequence, Step
from tokenwire.worker.vllm_engine.driver import Driver, VllmRequest
from tokenwire.worker.vllm_engine.errors import vllm_errors
from tokenwire.worker.vllm_engine.sampling import to_vllm

log = logging.getLogger(__name__)

# Shorter than a KV block, and never prefilled in chunks, in which seeds may kill vLLM's CPU runner.
_PROMPT = [1, 2, 3, 4]
_MAX_TOKENS = 2

# Seeded or greedy, so that the engine's own generator keeps its state. vLLM itself warms up the kernels of adapters.
_REQUESTS: dict[str, dict[str, Any]] = {
    "sampling": {"seed": 1, "temperature": 0.8, "top_p": 0.9, "top_k": 5, "min_p": 0.01},
    "penalties": {"temperature": 0, "repetition_penalty": 1.1, "frequency_penalty": 0.1, "presence_penalty": 0.1},
    "bans": {"temperature": 0, "min_tokens": 2, "logit_bias": {1: 1.0}, "stop_token_ids": [1]},
    "allowed ids": {"temperature": 0, "allowed_token_ids": [1, 2]},
    "log-probabilities": {"temperature": 0, "logprobs": 1},
    "chosen log-probabilities": {"temperature": 0, "logprob_token_ids": [1]},
    "prompt log-probabilities": {"temperature": 0, "prompt_logprobs": 1},
    "regex": {"temperature": 0, "structured_outputs": pb.StructuredOutputs(regex="[0-9]{9}")},
    "json": {"temperature": 0, "structured_outputs": pb.StructuredOutputs(json_schema='{"type": "object"}')},
}


async def warm_up(llm: Any, driver: Driver) -> None:
    """Run one short request of each kind on every rank, with a driver used only for this.

    Kinds that this engine refuses are skipped. Raises EngineFailed if the engine dies or is stopped.
    """
    started_at = time.monotonic()
    with _uncounted(llm):
        await driver.start()
        steps = driver.steps()
        for rank in _ranks(llm):
            for name in _REQUESTS:
                await _run(driver, steps, name, rank)
        # Returns after all output of the requests; and none of their blocks stays cached.
        await llm.reset_prefix_cache()
        await driver.stop()
    log.info("warmed up in %.1f s", time.monotonic() - started_at)


def _ranks(llm: Any) -> list[int | None]:
    parallel = llm.vllm_config.parallel_config
    ranks = parallel.data_parallel_size_local if parallel.local_engines_only else parallel.data_parallel_size
    return [None] if ranks == 1 else list(range(ranks))


async def _run(driver: Driver, steps: AsyncIterator[Step], name: str, rank: int | None) -> None:
    sequence = EngineSequence(FrameBuffer(), slot=0, request_id=f"warm-up {name}", index=0)
    try:
        with vllm_errors():
            vllm_request = _vllm_request(name, rank)
        await driver.submit(vllm_request, [sequence])
    except TokenwireError as error:
        log.debug("skipped warm-up of %s: %s", name, error.message)
        return
    async for step in steps:
        if any(ended is sequence and not finish.handed_back for ended, finish in step.finishes):
            return
    raise EngineFailed("The engine was stopped during warm-up.")


def _vllm_request(name: str, rank: int | None) -> VllmRequest:
    params = pb.SamplingParams(max_tokens=_MAX_TOKENS, **_REQUESTS[name])
    inputs = {"data_parallel_rank": rank}
    return VllmRequest(f"warm-up {name}", tokens_input(_PROMPT), to_vllm(params, 1), inputs, {"reasoning_ended": True})


@contextmanager
def _uncounted(llm: Any) -> Iterator[None]:
    """Disable vLLM's loggers inside the block."""
    manager, llm.logger_manager = llm.logger_manager, None
    try:
        yield
    finally:
        llm.logger_manager = manager
        # It keeps the loggers of its start, so the next driver starts another one.
        handler, llm.output_handler = llm.output_handler, None
        if handler is not None:
            handler.cancel()
