"""What log-probabilities of sampled tokens take between vLLM's processes, and of the worker that reads them."""

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from tokenwire.worker.engine.frame_buffer import FrameBuffer
from tokenwire.worker.engine.interface import EngineSequence, Step

_STREAMS = 256
_REPEATS, _ROUNDS = 60, 7


@dataclass(frozen=True, slots=True)
class MessageRow:
    """CPU time of a token, one of a step's 256, the least of many."""

    case: str
    engine_encodes_us: float
    """By vLLM, in the process of its engine."""
    worker_decodes_us: float
    """By vLLM, in the worker's process."""
    worker_converts_us: float
    """By tokenwire, to what is sent beside the tokens."""


def run() -> Iterator[dict[str, Any]]:
    """Measure steps without and with log-probabilities."""
    for scored in (False, True):
        yield asdict(_row(scored))


def _row(scored: bool) -> MessageRow:
    from vllm.v1.engine import EngineCoreOutput, EngineCoreOutputs
    from vllm.v1.outputs import LogprobsLists
    from vllm.v1.serial_utils import MsgpackDecoder, MsgpackEncoder

    from tokenwire.worker.vllm_engine.logprobs import add_logprobs

    scores = [
        LogprobsLists(np.array([[place]], np.int32), np.array([[-0.5]], np.float32), np.array([1], np.int32))
        for place in range(_STREAMS)
    ]
    outputs = EngineCoreOutputs(
        outputs=[
            EngineCoreOutput(f"chatcmpl-{place:032x}", [place], new_logprobs=each if scored else None)
            for place, each in enumerate(scores)
        ]
    )
    encoder, decoder = MsgpackEncoder(), MsgpackDecoder(EngineCoreOutputs)
    encoded = [bytes(part) for part in encoder.encode(outputs)]
    sequence = EngineSequence(FrameBuffer(), 0, "", 0, True)

    def convert() -> None:
        step = Step()
        for each in scores:
            add_logprobs(step, sequence, each, 1)

    return MessageRow(
        "scored" if scored else "plain",
        _least_us(lambda: encoder.encode(outputs)),
        _least_us(lambda: decoder.decode(encoded)),
        _least_us(convert) if scored else 0.0,
    )


def _least_us(work: Callable[[], object]) -> float:
    taken = []
    for _ in range(_ROUNDS):
        started = time.process_time()
        for _ in range(_REPEATS):
            work()
        taken.append(time.process_time() - started)
    return 1e6 * min(taken) / _REPEATS / _STREAMS
