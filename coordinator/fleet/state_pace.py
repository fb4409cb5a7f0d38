"""Takes the serving states that a worker announces: the newest one, as often as that costs little."""

import asyncio
from collections.abc import Callable

from tokenwire.v1 import inference_pb2 as pb

_CHEAP_S = 0.005
"""What takes less is done at once, however often."""
_TIMES = 9
"""The next one waits for so many times as long as the last one took: a tenth of a core for each worker."""


class StatePace:
    """Passes states on. Each is all that there is to know, so that those between two are left out."""

    def __init__(self, on_state: Callable[[pb.ServingState], None]) -> None:
        self._on_state = on_state
        self._free_at = 0.0
        self._newest: pb.ServingState | None = None
        """The one that waits."""
        self._timer: asyncio.TimerHandle | None = None

    def put(self, state: pb.ServingState) -> None:
        """Pass a state on, now or later. Raises what the receiver raises, if that is now."""
        loop = asyncio.get_running_loop()
        if self._timer is not None:
            self._newest = state
        elif loop.time() < self._free_at:
            self._newest = state
            self._timer = loop.call_at(self._free_at, self._on_timer)
        else:
            self._pass_on(state)

    def close(self) -> None:
        """Drop what waits: the session has ended."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._newest = None

    def _on_timer(self) -> None:
        state, self._timer, self._newest = self._newest, None, None
        if state is not None:
            self._pass_on(state)

    def _pass_on(self, state: pb.ServingState) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        self._on_state(state)
        took = loop.time() - began
        if took > _CHEAP_S:
            self._free_at = began + took * (1 + _TIMES)
