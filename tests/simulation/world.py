"""An event loop of many simulated processes: virtual time, seeded order among them, first in first out in each.

One file, since the loop and its processes are one another's halves.
"""

import asyncio
import gc
import hashlib
import heapq
import itertools
import random
import sys
import warnings
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import Context, ContextVar
from typing import Any, TextIO, TypeVar, TypeVarTuple

from tests.simulation import chance
from tests.simulation.chance import Escape
from tests.simulation.wall_clock import WallClock
from tokenwire.protocol.version import MINOR

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

Dial = Callable[[Callable[[], Any], str], Awaitable[tuple[Any, Any]]]
"""Connects the running process to an address. Raises OSError."""

_START_S = 1000.0
_MAX_IDLE_TURNS = 100_000
"""Turns without time passing that count as a livelock."""


_RIGHT = WallClock()


class Node:
    """One simulated process: its ready queue and its chance. It can be frozen, as by SIGSTOP, or killed."""

    def __init__(self, world: "World", name: str, number: int) -> None:
        self.name = name
        self.number = number
        self.world = world
        self.random = random.Random(f"{world.seed} {name} {number}")
        self.frozen = self.dead = False
        self.clock = _RIGHT
        """The wall clock of its machine."""
        self.minor = MINOR
        """The minor version of the protocol that it has."""
        self.thawed_at = 0.0
        """When it was last frozen."""
        self.harmed = False
        """Whether it was ever frozen, or something in it was broken."""
        self.lies = False
        """Whether it announces what it likes."""
        self.told_to_end = False
        """Whether somebody has terminated or drained it."""
        self.out_of_time = False
        """Whether it was to have ended by now."""
        self.checkpoint = 0
        """The weights that a worker has started with."""
        self.seeded_noise = ""
        """The noise that a worker announces."""
        self.tasks: list[asyncio.Task[Any]] = []
        """All tasks: a killed process runs no `finally`, so none of them may be collected before the end."""
        self.ready: deque[asyncio.Handle] = deque()
        self.context = Context()
        self.context.run(NODE.set, self)

    def spawn(self, coroutine: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Run a coroutine in this process."""
        return self.context.copy().run(self.world.create_task, coroutine)

    def call(self, function: Callable[..., object], *args: Any) -> None:
        """Call a function in this process, soon."""
        self.world.call_soon(function, *args, context=self.context)

    def put(self, handle: asyncio.Handle) -> None:
        """Add a callback to the ready queue. A frozen process gathers what arrives, as a kernel does."""
        self.ready.append(handle)
        if len(self.ready) == 1 and not self.frozen and not self.dead:
            self.world.awake.append(self)

    def freeze(self) -> None:
        """Run nothing until `thaw`."""
        self.frozen = self.harmed = True
        self._sleep()

    def thaw(self) -> None:
        """Go on after `freeze`."""
        if self.frozen and not self.dead:
            self.frozen = False
            self.thawed_at = self.world.time()
            if self.ready:
                self.world.awake.append(self)

    def kill(self) -> None:
        """Run nothing ever again."""
        self.dead = True
        self._sleep()

    def _sleep(self) -> None:
        if self in self.world.awake:
            self.world.awake.remove(self)


NODE: ContextVar[Node] = ContextVar("node")
"""The process that a callback belongs to: every task and timer inherits it."""


class World(asyncio.BaseEventLoop):
    """The event loop. One turn runs what is ready in one process, as one iteration of its own loop would."""

    def __init__(self, seed: object, lateness_s: float = 0.0, log: TextIO | None = None) -> None:
        """`lateness_s`: the most by which a timer is late. `log` gets every line of the trace."""
        super().__init__()
        self.seed = seed
        self.awake: list[Node] = []
        self.nodes: list[Node] = []
        self.errors: list[str] = []
        """What reached the loop's exception handler."""
        self.callbacks = 0
        self.reached: Counter[str] = Counter()
        """What has happened inside processes, by name."""
        self.on_turn: Callable[[Node], None] = lambda node: None
        """Called after each turn of a process."""
        self.dial: Dial | None = None
        """Who connects byte streams; None: nobody."""
        self._lateness_s = lateness_s
        self._log = log
        self._now = _START_S
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._numbers = itertools.count()
        self._order = random.Random(f"{seed} order")
        self._digest = hashlib.blake2b(digest_size=16)
        self._idle_turns = 0
        self.root = self.running = self.node("world")
        self.set_exception_handler(self._on_error)

    def node(self, name: str) -> Node:
        """Start a process."""
        self.nodes.append(Node(self, name, len(self.nodes)))
        return self.nodes[-1]

    @property
    def elapsed_s(self) -> float:
        """Virtual seconds since the beginning."""
        return self._now - _START_S

    def note(self, *what: object) -> None:
        """Add a line to the trace."""
        line = f"{self._now - _START_S:.6f} {' '.join(map(str, what))}\n"
        self._digest.update(line.encode())
        if self._log is not None:
            self._log.write(line)

    def note_message(self, lane: str, message: tuple[object, ...], describe: Callable[..., str]) -> None:
        """Add a message to the trace: its bytes to the digest, and what it says to the log."""
        when = f"{self._now - _START_S:.6f} {lane}"
        self._digest.update(when.encode())
        for part in message:
            self._digest.update(part if isinstance(part, bytes) else str(part).encode())
        if self._log is not None:
            self._log.write(f"{when} {describe(*message)}\n")

    def trace(self) -> str:
        """Return the digest of the trace: of every turn, message and token."""
        return self._digest.hexdigest()

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the root process to its end. Raises Escape."""
        hooks = sys.get_asyncgen_hooks()
        gc.disable()  # until `bury`: a collection would run `finally` blocks at a moment that no seed decides
        chance.enter(_Now(self))
        asyncio._set_running_loop(self)
        vars(self)["_thread_id"] = 1  # it counts as running
        sys.set_asyncgen_hooks(finalizer=self._close_generator)
        try:
            task = self.root.spawn(main)
            while not task.done():
                self._turn()
            return task.result()
        finally:
            vars(self)["_thread_id"] = None
            sys.set_asyncgen_hooks(*hooks)
            asyncio._set_running_loop(None)
            chance.enter(None)

    def failures(self) -> list[str]:
        """Return the tasks of living processes that raised something nobody retrieved."""
        return [
            f"{node.name}: {task.get_coro()} raised {task.exception()!r}"
            for node in self.nodes
            if not node.dead
            for task in node.tasks
            if task.done() and not task.cancelled() and task._log_traceback
        ]

    def bury(self) -> None:
        """Forget all tasks and timers, and collect them without running what they have left.

        What their `finally` blocks do all the same has not happened: it is not in the trace.
        """
        self._log = None
        self.set_exception_handler(lambda loop, context: None)
        self.on_turn = lambda node: None
        self._closed = True
        before, sys.unraisablehook = sys.unraisablehook, lambda unraisable: None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of coroutines that killed processes never began
            try:
                for node in self.nodes:
                    for task in node.tasks:
                        task._log_destroy_pending = False  # type: ignore[attr-defined]
                    node.tasks.clear()
                    node.ready.clear()
                self._timers.clear()
                gc.collect()
            finally:
                sys.unraisablehook = before
                gc.enable()

    # What asyncio calls.

    def time(self) -> float:
        return self._now

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        handle._context.get(NODE, self.root).put(handle)  # type: ignore[attr-defined]
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, next(self._numbers), timer))
        return timer

    def call_later(
        self, delay: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def create_task(self, coro: Any, *, name: object = None, context: Context | None = None) -> asyncio.Task[Any]:
        task = asyncio.Task(coro, loop=self, name=str(name or "task"), context=context)
        NODE.get(self.root).tasks.append(task)
        return task

    def run_in_executor(self, executor: Any, func: Callable[..., T], *args: Any) -> "asyncio.Future[T]":  # type: ignore[override]
        """Call a function inline, after the time that a thread might take."""
        future: asyncio.Future[T] = self.create_future()

        def work() -> None:
            try:
                result = func(*args)
            except Exception as error:
                if not future.done():
                    future.set_exception(error)
            else:
                if not future.done():
                    future.set_result(result)

        self.call_later(self._order.uniform(0.0005, 0.02), work)
        return future

    async def create_connection(self, protocol_factory: Any, host: Any = None, port: Any = None, **_: Any) -> Any:
        if self.dial is None:
            raise Escape(f"a connection to {host}:{port}")
        return await self.dial(protocol_factory, f"{host}:{port}")

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        pass

    def _close_generator(self, generator: Any) -> None:
        self.call_soon(self.create_task, generator.aclose())

    def _on_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.errors.append(f"{self.running.name}: {context.get('message')}: {context.get('exception')!r}")

    # Turns.

    def _turn(self) -> None:
        if not self.awake:
            self._advance()
            return
        index = self._order.randrange(len(self.awake)) if len(self.awake) > 1 else 0
        node = self.running = self.awake.pop(index)
        ready, count = node.ready, len(node.ready)
        self._digest.update(b"%d %d\n" % (node.number, count))
        self.callbacks += count
        for _ in range(count):  # what is added meanwhile comes in its next turn, as in asyncio
            handle = ready.popleft()
            if not handle.cancelled():
                handle._run()
            if node.dead or node.frozen:
                return
        self.on_turn(node)
        if ready and node not in self.awake:
            self.awake.append(node)
        self._idle_turns += 1
        if self._idle_turns > _MAX_IDLE_TURNS:
            raise Escape(f"{node.name} runs without end at {self.elapsed_s:.3f} s: a livelock")

    def _advance(self) -> None:
        timers = self._timers
        while timers and timers[0][2].cancelled():
            heapq.heappop(timers)
        if not timers:
            raise Escape("nothing is left to do: a deadlock")
        self._idle_turns = 0
        late_s = self._order.random() ** 4 * self._lateness_s if self._lateness_s else 0.0
        self._now = max(self._now, timers[0][0] + late_s)
        while timers and timers[0][0] <= self._now:
            timer = heapq.heappop(timers)[2]
            if not timer.cancelled():
                timer._context.get(NODE, self.root).put(timer)  # type: ignore[attr-defined]


class _Now:
    """The time of a world, and the chance of whichever of its processes runs."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.time = world.time

    def wall_time(self) -> float:
        return NODE.get(self._world.root).clock.read(self.time())

    def random(self) -> random.Random:
        return NODE.get(self._world.root).random
