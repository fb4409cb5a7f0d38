"""Many simulated workers in one process.

`python -m benchmarks.many_workers COUNT STEP_MS MAX_NUM_SEQS [MODEL NAME SCRIPT]`, by default with the built-in model.
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import uvloop

from tokenwire.worker.server import WorkerServer
from tokenwire.worker.settings import WorkerSettings
from tokenwire.worker.simulated_engine.engine import SimulatedEngine
from tokenwire.worker.simulated_engine.settings import SimulationSettings


async def main(count: int, step_ms: float, max_num_seqs: int, *model: str) -> None:
    """Run until killed."""
    given: dict[str, Any] = {}
    if model:
        folder, name, script = model
        given = {"model_dir": Path(folder), "served_model_names": (name,)}
        given["script"] = tuple(json.loads(Path(script).read_text()))
    settings = SimulationSettings(step_ms=step_ms, prefill_tokens_per_s=0, max_num_seqs=max_num_seqs, **given)
    servers = [WorkerServer(SimulatedEngine(settings), WorkerSettings("127.0.0.1:0")) for _ in range(count)]
    for server in servers:
        await server.startup()
    print("ready:", *(server.address for server in servers), flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:]))
