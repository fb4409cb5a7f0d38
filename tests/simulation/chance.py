"""Clocks and chance of simulated processes. Import this module before anything of tokenwire.

tokenwire binds `time.monotonic` as the default of parameters, and calls `random`, `uuid` and `os.urandom` directly.
All of them are replaced once, before the first import: within a run they are functions of its seed, outside of one
they are the real ones. What cannot be made deterministic raises Escape.
"""

import os
import random
import sys
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any, Protocol

_EPOCH_S = 1_700_000_000.0
"""The time of day at which every run begins, in seconds since 1970."""
_CLOCKS = {"monotonic": 0.0, "perf_counter": 0.0, "thread_time": 0.0, "process_time": 0.0, "time": _EPOCH_S}
_DRAWS = (
    "random",
    "uniform",
    "randint",
    "randrange",
    "getrandbits",
    "choice",
    "choices",
    "shuffle",
    "sample",
    "randbytes",
)
_FORBIDDEN_EVENTS = frozenset({"subprocess.Popen", "os.system", "os.fork", "os.exec", "os.posix_spawn"})


class Escape(BaseException):
    """Simulated code reached for the real world. Not an Exception, so that no handler of the product takes it."""


class ChanceSource(Protocol):
    """Where simulated code gets its time and its random numbers."""

    def time(self) -> float:
        """Return the virtual time in seconds."""

    def wall_time(self) -> float:
        """Return what the clock on the wall of the machine that runs now shows, in seconds from the beginning."""

    def random(self) -> random.Random:
        """Return the generator of the process that runs now."""


class _Door:
    """What the replaced functions ask; None: reality."""

    source: ChanceSource | None = None


_door = _Door()
REAL_CLOCKS: dict[str, Callable[[], float]] = {name: getattr(time, name) for name in _CLOCKS}
REAL: dict[str, Callable[..., Any]] = {
    **REAL_CLOCKS,
    **{name: getattr(random, name) for name in _DRAWS},
    "uuid4": uuid.uuid4,
    "urandom": os.urandom,
    "sleep": time.sleep,
}
"""The functions that are replaced."""


def enter(source: ChanceSource | None) -> None:
    """Take time and chance from a source from now on; None: from reality."""
    _door.source = source


def _clock(name: str, start: float) -> Callable[[], float]:
    real = REAL_CLOCKS[name]

    def read() -> float:
        if _door.source is None:
            return real()
        return start + (_door.source.wall_time() if name == "time" else _door.source.time())

    return read


def _clock_ns(read: Callable[[], float], real: Callable[[], int]) -> Callable[[], int]:
    return lambda: real() if _door.source is None else round(read() * 1e9)


def _draw(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
    def draw(*args: Any, **named: Any) -> Any:
        if _door.source is None:
            return real(*args, **named)
        return getattr(_door.source.random(), name)(*args, **named)

    return draw


def _forbid(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **named: Any) -> Any:
        if _door.source is not None:
            raise Escape(name)
        return real(*args, **named)

    return call


def _audit(event: str, args: object) -> None:
    if _door.source is not None and (event in _FORBIDDEN_EVENTS or event.startswith("socket.")):
        raise Escape(f"{event} {args!r}")


def _install() -> None:
    for name, start in _CLOCKS.items():
        read = _clock(name, start)
        setattr(time, name, read)
        setattr(time, f"{name}_ns", _clock_ns(read, getattr(time, f"{name}_ns")))
    for name in _DRAWS:
        setattr(random, name, _draw(name, getattr(random, name)))
    real_uuid4, real_urandom = uuid.uuid4, os.urandom

    def uuid4() -> uuid.UUID:
        if _door.source is None:
            return real_uuid4()
        return uuid.UUID(int=_door.source.random().getrandbits(128), version=4)

    def urandom(size: int) -> bytes:
        return real_urandom(size) if _door.source is None else _door.source.random().randbytes(size)

    uuid.uuid4, os.urandom = uuid4, urandom
    # Neither reaches an audit hook in Python 3.11.
    time.sleep = _forbid("time.sleep", time.sleep)
    threading.Thread.start = _forbid("threading.Thread.start", threading.Thread.start)  # type: ignore[method-assign]
    sys.addaudithook(_audit)


if any(name.startswith("tokenwire") for name in sys.modules):
    raise ImportError("tests.simulation.chance must be imported before tokenwire: it replaces clocks that others bind")
_install()
