"""The simulated engine without a worker, as a baseline for the worker's CPU time."""

import sys
import time

import uvloop

from tokenwire.v1 import inference_pb2 as pb
from tokenwire.worker.engine.frame_buffer import FrameBuffer
from tokenwire.worker.engine.interface import EngineSequence
from tokenwire.worker.simulated_engine.engine import SimulatedEngine, SimulationSettings


async def run(streams: int, step_ms: float, seconds: float, scored: bool) -> float:
    """Return CPU microseconds per token of an engine whose steps are not sent; with log-probabilities of tokens."""
    settings = SimulationSettings(step_ms=step_ms, prefill_tokens_per_s=0, max_num_seqs=streams)
    engine = SimulatedEngine(settings)
    await engine.start()
    buffer = FrameBuffer()
    for slot in range(streams):
        submit = pb.Submit(request_id=str(slot), slots=[slot], prompt_token_ids=[1, 2, 3])
        submit.sampling_params.max_tokens = 20_000
        await engine.submit(submit, [EngineSequence(buffer, slot, submit.request_id, 0, scored)])
    used, started = time.process_time(), time.monotonic()
    async for _ in engine.steps():
        if time.monotonic() - started > seconds:
            break
    return 1e6 * (time.process_time() - used) / engine.tokens_total


if __name__ == "__main__":
    taken = run(int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3]), scored="scored" in sys.argv)
    print(f"ready: {uvloop.run(taken):.4f}", flush=True)
