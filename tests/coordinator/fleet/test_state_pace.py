"""States that take long wait for a while, and only the newest one is taken."""

import asyncio
import time

from tokenwire.coordinator.fleet.state_pace import StatePace
from tokenwire.v1 import inference_pb2 as pb


class Receiver:
    """Takes so much time for each state."""

    def __init__(self, takes_s: float = 0.0) -> None:
        self.revisions: list[int] = []
        self.takes_s = takes_s
        self.pace = StatePace(self.on_state)

    def on_state(self, state: pb.ServingState) -> None:
        """Record it."""
        self.revisions.append(state.revision)
        end = time.monotonic() + self.takes_s
        while time.monotonic() < end:
            pass

    def put(self, *revisions: int) -> None:
        """Let states come."""
        for revision in revisions:
            self.pace.put(pb.ServingState(revision=revision))


async def test_small_states_are_taken_at_once() -> None:
    """Each of them."""
    receiver = Receiver()
    receiver.put(*range(100))
    assert receiver.revisions == [*range(100)]


async def test_of_states_that_take_long_the_newest_is_taken_after_a_while() -> None:
    """However many come meanwhile: they cost a tenth of the time."""
    receiver = Receiver(0.01)
    began = time.monotonic()
    receiver.put(*range(100))
    assert receiver.revisions == [0]
    while len(receiver.revisions) < 2:  # noqa: ASYNC110 (it waits for time to pass)
        await asyncio.sleep(0.005)
    assert time.monotonic() - began >= 0.1
    assert receiver.revisions == [0, 99]


async def test_what_waits_goes_with_its_session() -> None:
    """It is of a process that may be gone."""
    receiver = Receiver(0.01)
    receiver.put(0, 1)
    receiver.pace.close()
    receiver.takes_s = 0.0
    await asyncio.sleep(0.12)
    assert receiver.revisions == [0]
