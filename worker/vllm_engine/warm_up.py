"""Runs what compiles or allocates on first use before anybody waits for it; nothing of it is counted or cached."""

import logging
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

from vllm.inputs import tokens_input

from tokenwire.errors import EngineFailed, TokenwireError
from tokenwire.v1 import inference_pb2 as pb
from tokenwire.worker.engine import Sequence, Step
from tokenwire.worker.frame_buffer import Outbox
from tokenwire.worker.vllm_engine.driver import Admission, Driver
from tokenwire.worker.vllm_engine.errors import vllm_errors
from tokenwire.worker.vllm_engine.sampling import to_vllm

log = logging.getLogger(__name__)

# Shorter than a block of the KV cache, and never prefilled in chunks: vLLM's CPU runner may die of seeds then.
_PROMPT = [1, 2, 3, 4]
_MAX_TOKENS = 2

# Seeded or greedy: the engine's own generator stays where it was. Adapters run in kernels that vLLM itself warms up.
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
    """Run one short request of each kind on every rank, with a driver that is only for this.

    A kind that this engine refuses is left out. Raises EngineFailed when the engine dies or is stopped.
    """
    began = time.monotonic()
    with _uncounted(llm):
        await driver.start()
        steps = driver.steps()
        for rank in _ranks(llm):
            for name in _REQUESTS:
                await _run(driver, steps, name, rank)
        # Answered after all that the requests still had to say; and no block of theirs stays.
        await llm.reset_prefix_cache()
        await driver.stop()
    log.info("warmed up in %.1f s", time.monotonic() - began)


def _ranks(llm: Any) -> list[int | None]:
    parallel = llm.vllm_config.parallel_config
    ranks = parallel.data_parallel_size_local if parallel.local_engines_only else parallel.data_parallel_size
    return [None] if ranks == 1 else list(range(ranks))


async def _run(driver: Driver, steps: AsyncIterator[Step], name: str, rank: int | None) -> None:
    sequence = Sequence(Outbox(), slot=0, request_id=f"warm-up {name}", index=0)
    try:
        with vllm_errors():
            admission = _admission(name, rank)
        await driver.submit(admission, [sequence])
    except TokenwireError as error:
        log.debug("not warmed up for %s: %s", name, error.message)
        return
    async for step in steps:
        if any(ended is sequence and not finish.handed_back for ended, finish in step.finishes):
            return
    raise EngineFailed("The engine was stopped while it was warming up.")


def _admission(name: str, rank: int | None) -> Admission:
    params = pb.SamplingParams(max_tokens=_MAX_TOKENS, **_REQUESTS[name])
    inputs = {"data_parallel_rank": rank}
    return Admission(f"warm-up {name}", tokens_input(_PROMPT), to_vllm(params, 1), inputs, {"reasoning_ended": True})


@contextmanager
def _uncounted(llm: Any) -> Iterator[None]:
    """Keep vLLM's loggers from hearing of what happens inside the block."""
    manager, llm.logger_manager = llm.logger_manager, None
    try:
        yield
    finally:
        llm.logger_manager = manager
        # It holds on to the loggers that there were when it began; whoever comes next begins another one.
        handler, llm.output_handler = llm.output_handler, None
        if handler is not None:
            handler.cancel()
