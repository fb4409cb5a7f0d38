"""A serving-state controller over a simulated engine that records its weights and fails on command."""

import asyncio
from pathlib import Path
from typing import Any

from tokenwire.errors import EngineFailed
from tokenwire.v1 import inference_pb2 as pb
from tokenwire.worker.engine.interface import PauseMode
from tokenwire.worker.simulated_engine.engine import SimulatedEngine
from tokenwire.worker.simulated_engine.settings import SimulationSettings
from tokenwire.worker.state.serving_state import ServingStateController
from tokenwire.worker.state.weight_roots import WeightRoots

ADAPTER = pb.LoraAdapter(name="red", id=7, path="/adapters/red")


class Engine(SimulatedEngine):
    """A simulated engine that records which weights it read, and fails on command."""

    def __init__(self) -> None:
        super().__init__(SimulationSettings(step_ms=1))
        self.read: list[str] = []
        self.error = ""
        self.pausing = asyncio.Event()
        """Set when a pause begins."""
        self.reading = asyncio.Event()
        """Set when reading weights begins."""
        self.may_read = asyncio.Event()
        """Reading ends once this is set; a test may clear it."""
        self.may_read.set()
        self.resets = 0
        """How often the prefix cache was reset."""

    async def pause(self, mode: PauseMode, clear_cache: bool) -> None:
        """Set `pausing`, then pause."""
        self.pausing.set()
        await super().pause(mode, clear_cache)

    async def load_weights(self, path: str) -> None:
        """Record the path, or fail."""
        self.read.append(path)
        self.reading.set()
        await self.may_read.wait()
        if self.error:
            raise EngineFailed(self.error)
        await super().load_weights(path)

    async def reset_cache(self, reset_running_requests: bool, reset_external: bool) -> bool:
        """Count, then reset."""
        self.resets += 1
        return await super().reset_cache(reset_running_requests, reset_external)

    async def collective_rpc(
        self, method: str, timeout_s: float | None, args: list[Any], kwargs: dict[str, Any]
    ) -> list[Any]:
        """Do nothing, or fail."""
        if self.error:
            raise EngineFailed(self.error)
        return []

    async def update_weights(self, stage: str, arguments: dict[str, Any]) -> None:
        """Run the stage, or fail."""
        if self.error:
            raise EngineFailed(self.error)
        await super().update_weights(stage, arguments)


class ServingWorker:
    """An engine, its controller, and the states that it published."""

    def __init__(self, roots: tuple[Path, ...] = ()) -> None:
        self.engine = Engine()
        self.published: list[pb.ServingState] = []
        self.controller = ServingStateController(self.engine, self.published.append, WeightRoots(roots))

    async def start(self) -> "ServingWorker":
        """Start both."""
        await self.engine.start()
        await self.controller.start()
        return self

    @property
    def state(self) -> pb.ServingState:
        """The last published state."""
        assert self.published[-1] == self.controller.state
        return self.published[-1]
