"""Many simulated workers in one process: `python -m benchmarks.many_workers COUNT STEP_MS MAX_NUM_SEQS`."""

import asyncio
import sys

import uvloop

from tokenwire.worker.server import WorkerServer
from tokenwire.worker.settings import WorkerSettings
from tokenwire.worker.simulated_engine.engine import SimulatedEngine
from tokenwire.worker.simulated_engine.settings import SimulationSettings


async def main(count: int, step_ms: float, max_num_seqs: int) -> None:
    """Run until killed."""
    settings = SimulationSettings(step_ms=step_ms, prefill_tokens_per_s=0, max_num_seqs=max_num_seqs)
    servers = [WorkerServer(SimulatedEngine(settings), WorkerSettings("127.0.0.1:0")) for _ in range(count)]
    for server in servers:
        await server.startup()
    print("ready:", *(server.address for server in servers), flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])))
