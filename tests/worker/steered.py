"""A worker's engine and its steering, for tests: what it read, what it announced, and failures on command."""

import asyncio
from pathlib import Path
from typing import Any

from tokenwire.errors import EngineFailed
from tokenwire.v1 import inference_pb2 as pb
from tokenwire.worker.engine import PauseMode
from tokenwire.worker.serving_state import ServingStateController
from tokenwire.worker.simulated_engine.engine import SimulatedEngine
from tokenwire.worker.simulated_engine.settings import SimulationSettings
from tokenwire.worker.weight_roots import WeightRoots

ADAPTER = pb.LoraAdapter(name="red", id=7, path="/adapters/red")


class Engine(SimulatedEngine):
    """A simulated engine that notes which weights it read, and fails when it is told to."""

    def __init__(self) -> None:
        super().__init__(SimulationSettings(step_ms=1))
        self.read: list[str] = []
        self.breaks = ""
        self.pausing = asyncio.Event()
        """Set when a pause began."""
        self.reading = asyncio.Event()
        """Set when reading of weights began."""
        self.may_read = asyncio.Event()
        """Set when it may end; it may unless a test says otherwise."""
        self.may_read.set()

    async def pause(self, mode: PauseMode, clear_cache: bool) -> None:
        """Say that it began."""
        self.pausing.set()
        await super().pause(mode, clear_cache)

    async def load_weights(self, path: str) -> None:
        """Note it, or break."""
        self.read.append(path)
        self.reading.set()
        await self.may_read.wait()
        if self.breaks:
            raise EngineFailed(self.breaks)
        await super().load_weights(path)

    async def collective_rpc(
        self, method: str, timeout_s: float | None, args: list[Any], kwargs: dict[str, Any]
    ) -> list[Any]:
        """Break, or do nothing."""
        if self.breaks:
            raise EngineFailed(self.breaks)
        return []

    async def update_weights(self, stage: str, arguments: dict[str, Any]) -> None:
        """Break, or take part."""
        if self.breaks:
            raise EngineFailed(self.breaks)
        await super().update_weights(stage, arguments)


class Steered:
    """An engine, its steering, and what that announced."""

    def __init__(self, roots: tuple[Path, ...] = ()) -> None:
        self.engine = Engine()
        self.announced: list[pb.ServingState] = []
        self.steering = ServingStateController(self.engine, self.announced.append, WeightRoots(roots))

    async def start(self) -> "Steered":
        """Start both."""
        await self.engine.start()
        await self.steering.start()
        return self

    @property
    def state(self) -> pb.ServingState:
        """The newest announcement."""
        assert self.announced[-1] == self.steering.state
        return self.announced[-1]
