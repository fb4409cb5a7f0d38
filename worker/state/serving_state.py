"""Applies admin operations to the engine, one at a time, and publishes the serving state they lead to.

One class beyond the usual length, since every operation changes the same state under the same lock.
"""

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from typing import Any, TypeVar

from tokenwire.errors import (
    CannotAdopt,
    NotFound,
    Superseded,
    TokenwireError,
    Unsupported,
)
from tokenwire.protocol.operation_records import fold, latest
from tokenwire.v1 import inference_pb2 as pb
from tokenwire.worker.engine.interface import READ_WEIGHTS, Engine, PauseMode
from tokenwire.worker.state.weight_roots import WeightRoots

Result = TypeVar("Result")
Records = Sequence[pb.OperationRecord]


class ServingStateController:
    """Admin operations on the engine, each with its epoch; 0: a call of its own, which no coordinator ordered.

    Their records are stored in the state once they are carried out; this worker cannot judge them. An operation
    without one, of an older coordinator, leaves none: those of earlier ones would no longer say what the state is.

    Every method raises Superseded if its epoch is older than the state's, and what the engine raises; the state
    then keeps its epoch, but still reflects what became of the engine.
    """

    def __init__(
        self,
        engine: Engine,
        publish: Callable[[pb.ServingState], None],
        roots: WeightRoots,
        on_abort: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_abort` is called when an operation is about to abort all running sequences."""
        self._on_abort = on_abort
        self._engine = engine
        self._publish = publish
        self._roots = roots
        self._state = pb.ServingState()
        self._published = pb.ServingState()
        self._initial_version = ""
        self._transferring = False
        self._torn = False
        self._lock = asyncio.Lock()
        self._waiting = asyncio.Event()
        """Set while the change that has the lock waits for running sequences."""
        self._waiting_epoch = 0
        self._changes: set[asyncio.Task[Any]] = set()

    @property
    def state(self) -> pb.ServingState:
        """The state that was published last. Do not modify it."""
        return self._published

    @property
    def suspends_stepping(self) -> bool:
        """Whether the engine has a reason not to step: it is paused, asleep, or being changed."""
        return bool(self._changes) or self._state.paused or self._state.sleeping

    async def start(self) -> None:
        """Read the started engine's initial state."""
        await self._refresh()
        self._initial_version = self._state.weight_version
        self._notify()

    async def pause(self, epoch: int, mode: PauseMode, clear_cache: bool, records: Records = ()) -> None:
        """Pause generation; with WAIT, once running sequences have ended."""
        await self._run_exclusive(epoch, lambda: self._pause(epoch, mode, clear_cache), records)

    async def resume(self, epoch: int, records: Records = ()) -> None:
        """Resume generation. Overtakes and ends a change that waits for running sequences, unless that is newer."""
        turn = asyncio.create_task(self._lock.acquire())  # here, so that it queues in order of arrival
        await self._run_to_completion(self._resume(epoch, turn, records))

    async def sleep(self, epoch: int, level: int, mode: PauseMode, records: Records = ()) -> None:
        """Free memory."""
        await self._run_exclusive(epoch, lambda: self._sleep(epoch, level, mode), records)

    async def wake_up(self, epoch: int, tags: list[str], records: Records = ()) -> None:
        """Undo `sleep`, whole or by tags."""
        await self._run_exclusive(epoch, lambda: self._wake_up(tags), records)

    async def load_lora(self, epoch: int, adapter: pb.LoraAdapter, records: Records = ()) -> bool:
        """Load an adapter, replacing any other of its name; return whether it is loaded now."""
        return await self._run_exclusive(epoch, lambda: self._load_lora(adapter), records)

    async def unload_lora(self, epoch: int, adapter_id: int, records: Records = ()) -> bool:
        """Unload an adapter; return whether it was loaded."""
        return await self._run_exclusive(epoch, lambda: self._unload_lora(adapter_id), records)

    async def load_weights(
        self, epoch: int, path: str, version: str, reset_prefix_cache: bool, records: Records = ()
    ) -> None:
        """Load and label weights of a directory; "" restores the initial ones. Raises NotFound and InvalidRequest."""

        async def load() -> None:
            await self._check_weights(path)
            await self._load_weights(path, version or self._initial_version, epoch if path else 0)
            if reset_prefix_cache:
                await self._engine.reset_cache(reset_running_requests=True, reset_external=False)

        await self._run_exclusive(epoch, load, records)

    async def update_weights(self, epoch: int, stage: str, arguments: dict[str, Any], records: Records = ()) -> None:
        """Run one stage of a weight transfer."""
        await self._run_exclusive(epoch, lambda: self._update_weights(epoch, stage, arguments), records)

    async def set_weight_version(self, epoch: int, version: str, records: Records = ()) -> None:
        """Label the weights."""
        await self._run_exclusive(epoch, lambda: self._engine.set_weight_version(version), records)

    async def adopt(self, target: pb.ServingState) -> None:
        """Converge to the target state. Raises CannotAdopt if its weights came by a transfer."""
        await self._run_exclusive(target.epoch, lambda: self._adopt(target), target.records)

    async def collective_rpc(
        self, method: str, timeout_s: float | None, args: list[Any], kwargs: dict[str, Any]
    ) -> list[Any]:
        """Call a method of the engine's processes. Those that read weights run under the lock, and may tear them."""
        await asyncio.to_thread(self._roots.check_call, method, [args, kwargs])

        async def call() -> list[Any]:
            return await self._engine.collective_rpc(method, timeout_s, args, kwargs)

        async def read_weights() -> list[Any]:
            with self._weights_at_risk():
                return await call()

        return await (self._run_exclusive(0, read_weights) if method in READ_WEIGHTS else call())

    def check_adapter(self, adapter: pb.LoraAdapter) -> None:
        """Check that a request's adapter may be read from its path. Raises InvalidRequest."""
        if adapter not in self._state.adapters:
            self._roots.check(adapter.path)

    # Applying a change.

    async def _run_exclusive(self, epoch: int, verb: Callable[[], Awaitable[Result]], records: Records = ()) -> Result:
        """Apply a change under the lock."""

        async def change() -> Result:
            async with self._lock:
                return await self._change(epoch, verb, records)

        return await self._run_to_completion(change())

    async def _resume(self, epoch: int, turn: asyncio.Task[bool], records: Records) -> None:
        """Resume under the lock, or without it once the change that has it waits."""
        waiting = asyncio.create_task(self._waiting.wait())
        await asyncio.wait({turn, waiting}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if not turn.done():
            turn.cancel()
            _check_epoch(epoch, self._waiting_epoch)
            return await self._change(epoch, self._engine.resume, records)
        try:
            return await self._change(epoch, self._engine.resume, records)
        finally:
            self._lock.release()

    async def _run_to_completion(self, change: Coroutine[Any, Any, Result]) -> Result:
        """Shield a change from its caller's cancellation: the engine continues it, and the state must reflect it."""
        task = asyncio.create_task(change)
        self._changes.add(task)
        task.add_done_callback(self._changes.discard)
        task.add_done_callback(lambda done: done.cancelled() or done.exception())  # the caller may be gone
        return await asyncio.shield(task)

    async def _change(self, epoch: int, verb: Callable[[], Awaitable[Result]], records: Records) -> Result:
        newest = self._state.epoch
        # An equal epoch may have been adopted from another worker first, but an operation does more than set a state.
        _check_epoch(epoch, newest)
        try:
            result = await verb()
            if self._state.epoch > newest:  # a newer resume overtook this change, and is to be what came last
                await self._engine.resume()
            else:
                self._state.epoch = epoch or newest
            self._state.unmanaged = not epoch
            if epoch:
                self._store(records)
            return result
        finally:
            with contextlib.suppress(TokenwireError):
                await self._refresh()
            self._notify()

    def _store(self, records: Records) -> None:
        """Store the records of an operation, or of a state that was adopted."""
        stored = latest([*records, *self._state.records]) if records else []
        del self._state.records[:]
        self._state.records.extend(stored)

    async def _refresh(self) -> None:
        """Read the part of the state that is kept in the engine."""
        state, engine = self._state, self._engine
        state.paused = await engine.is_paused()
        state.weight_version = await engine.get_weight_version()
        # A paused engine reports itself as sleeping.
        state.sleeping = state.sleeping and await engine.is_sleeping()
        if not state.sleeping:
            state.sleep_level = 0
            del state.awake_parts[:]

    def _notify(self) -> None:
        if self._state != self._published or not self._state.revision:
            self._state.revision += 1
            snapshot = pb.ServingState()
            snapshot.CopyFrom(self._state)
            self._published = snapshot
            self._publish(snapshot)

    @contextlib.contextmanager
    def _weights_at_risk(self) -> Iterator[None]:
        """Record a weights fault if the engine fails inside the block: its weights are in an unknown state."""
        try:
            yield
        except Unsupported:
            raise
        except TokenwireError as error:
            self._state.weights_fault, self._torn = error.message, True
            raise

    @contextlib.contextmanager
    def _may_wait(self, epoch: int, mode: PauseMode) -> Iterator[None]:
        """Let running sequences be aborted, or let a resume end the wait for them."""
        if mode is PauseMode.ABORT:
            self._on_abort()
        if mode is PauseMode.WAIT:
            self._waiting_epoch = epoch
            self._waiting.set()
        try:
            yield
        finally:
            self._waiting.clear()

    # Steps of changes.

    async def _pause(self, epoch: int, mode: PauseMode, clear_cache: bool) -> None:
        with self._may_wait(epoch, mode):
            await self._engine.pause(mode, clear_cache)

    async def _sleep(self, epoch: int, level: int, mode: PauseMode) -> None:
        with self._may_wait(epoch, mode):
            await self._engine.sleep(level, mode)
        self._state.sleeping, self._state.sleep_level = True, level
        del self._state.awake_parts[:]

    async def _wake_up(self, tags: list[str]) -> None:
        await self._engine.wake_up(tags)
        self._state.awake_parts[:] = sorted({*self._state.awake_parts, *tags})

    async def _update_weights(self, epoch: int, stage: str, arguments: dict[str, Any]) -> None:
        # Before a transfer starts, an engine refuses to change anything.
        with self._weights_at_risk() if stage == "update" and self._transferring else contextlib.nullcontext():
            await self._engine.update_weights(stage, arguments)
        if stage == "update":
            self._state.weights_epoch, self._state.weights_path = epoch, ""
        elif stage in ("start", "start_draft"):
            self._transferring, self._torn = True, False
        elif stage == "finish":
            self._transferring = False
            if not self._torn:
                self._state.weights_fault = ""

    async def _check_weights(self, path: str) -> None:
        """Check that a directory exists and may be read; it may be on a network. The initial weights need no check."""
        if not path:
            return
        await asyncio.to_thread(self._roots.check, path)
        if not await asyncio.to_thread(os.path.isdir, path):
            raise NotFound(f"This worker has no directory {path}.", param="weight_dir")

    async def _load_weights(self, path: str, version: str, epoch: int) -> None:
        with self._weights_at_risk():
            await self._engine.load_weights(path)
        self._state.weights_fault = ""
        self._state.weights_epoch, self._state.weights_path = epoch, path
        await self._engine.set_weight_version(version)

    async def _load_lora(self, adapter: pb.LoraAdapter) -> bool:
        await asyncio.to_thread(self._roots.check, adapter.path)
        loaded = await self._engine.load_lora(adapter)
        kept = [other for other in self._state.adapters if other.id != adapter.id and other.name != adapter.name]
        await self._set_adapters([*kept, adapter])
        return loaded

    async def _unload_lora(self, adapter_id: int) -> bool:
        others = [adapter for adapter in self._state.adapters if adapter.id != adapter_id]
        return adapter_id in await self._set_adapters(others)

    async def _set_adapters(self, adapters: Sequence[pb.LoraAdapter]) -> set[int]:
        """Set which adapters there are; unload all others, and return those of them that were loaded.

        The engine has others than the last state if a request was under way while its adapter went.
        """
        by_id = sorted(adapters, key=lambda adapter: adapter.id)
        known = {adapter.id for adapter in self._state.adapters}.union(await self._engine.list_loras())
        gone = sorted(known - {adapter.id for adapter in by_id})
        unloaded = {adapter_id for adapter_id in gone if await self._engine.unload_lora(adapter_id)}
        del self._state.adapters[:]
        self._state.adapters.extend(by_id)
        return unloaded

    async def _adopt(self, target: pb.ServingState) -> None:
        state = self._state
        if target.records:  # of a coordinator that may not have heard of what this worker carried out
            target = fold(latest([*target.records, *state.records]), target)
        if state.sleeping and (not target.sleeping or not _same_weights(state, target)):
            await self._engine.wake_up([])
            state.sleeping = False
        await self._adopt_weights(target)
        ids = {adapter.id for adapter in target.adapters}
        for adapter in list(state.adapters):
            if adapter.id not in ids:
                await self._unload_lora(adapter.id)
        for adapter in target.adapters:
            if adapter not in state.adapters:
                await self._load_lora(adapter)
        await self._adopt_pause(target)

    async def _adopt_weights(self, target: pb.ServingState) -> None:
        state, version = self._state, target.weight_version or self._initial_version
        if not _same_weights(state, target):
            if target.weights_epoch and not target.weights_path:
                raise CannotAdopt(
                    f"The fleet's weights ({target.weight_version}) came by a transfer, which cannot be repeated for "
                    "one worker: update the weights of all workers again."
                )
            await self._check_weights(target.weights_path)
            await self._load_weights(target.weights_path, version, target.weights_epoch)
        elif state.weight_version != version:
            await self._engine.set_weight_version(version)

    async def _adopt_pause(self, target: pb.ServingState) -> None:
        state, engine = self._state, self._engine
        if target.sleeping:
            if not state.sleeping or state.sleep_level != target.sleep_level:
                await self._sleep(target.epoch, target.sleep_level, PauseMode.KEEP)
            if target.awake_parts:
                await self._wake_up(list(target.awake_parts))
        elif target.paused:
            await engine.pause(PauseMode.KEEP, clear_cache=False)
        else:
            await engine.resume()


def _check_epoch(epoch: int, newest: int) -> None:
    if epoch and epoch < newest:
        raise Superseded(f"Operation {epoch} is superseded by operation {newest}, which is newer.")


def _same_weights(state: pb.ServingState, target: pb.ServingState) -> bool:
    return state.weights_epoch == target.weights_epoch and not state.weights_fault
