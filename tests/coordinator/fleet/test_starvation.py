"""Which slots are starved, and after how long."""

from collections.abc import Sequence

import pytest

from tests.workers import Listener
from tokenwire.coordinator.fleet.frames import dispatch
from tokenwire.coordinator.fleet.outliers import OutlierSettings
from tokenwire.coordinator.fleet.slots import SlotTable
from tokenwire.coordinator.fleet.starvation import Starvation, StarvationWatch, StarvedSlot
from tokenwire.coordinator.fleet.workload import Workload
from tokenwire.v1 import inference_pb2 as pb


class WatchedWorker:
    """A worker with slots, which makes a step a second."""

    def __init__(self, slots: int = 2) -> None:
        self.slots = SlotTable()
        self.workload = Workload(self.slots)
        self.workload.begin(256, pb.Load())
        self.watch = StarvationWatch(self.slots, self.workload)
        self.steps = True
        self.prompts: dict[int, int] = {}
        for _ in range(slots):
            self.slots.take(Listener())
        self.run(2, range(slots))  # from now on each has been seen

    def run(
        self, seconds: int, served: Sequence[int] = (), load: pb.Load | None = None, named: Sequence[int] = ()
    ) -> list[StarvedSlot]:
        """Let time pass with a token a second for some slots, and none for others; return which are starved."""
        found: list[StarvedSlot] = []
        for _ in range(seconds):
            self.watch.steps += self.steps
            counts = [1] * len(served) + [0] * len(named) if named else []
            frame = pb.StepFrame(slots=[*served, *named], counts=counts, token_ids=[65] * len(served), load=load)
            self.workload.on_frame(frame)
            dispatch(frame, self.slots)
            found += self.watch.check(OutlierSettings(), 1.0, self.prompts)
        return found


@pytest.fixture
def worker() -> WatchedWorker:
    """A worker with two slots."""
    return WatchedWorker()


def test_a_slot_without_a_token_is_starved_after_the_timeout(worker: WatchedWorker) -> None:
    """The one beside it is served."""
    assert worker.run(30, [1]) == []
    assert worker.run(1, [1]) == [StarvedSlot(0, 31.0, Starvation.OTHERS_ARE_SERVED)]


def test_each_token_begins_the_time_anew(worker: WatchedWorker) -> None:
    """Also if it is one of many, and the next one never comes."""
    for _ in range(5):
        assert worker.run(29, [1]) == []
        assert worker.run(1, [0, 1]) == []
    assert worker.run(30, [1]) == []
    assert worker.run(1, [1]) != []


def test_frames_that_name_a_slot_without_a_token_do_not_count(worker: WatchedWorker) -> None:
    """A worker could send them forever."""
    assert worker.run(30, [1], named=[0]) == []
    assert worker.run(1, [1], named=[0]) != []


def test_a_slot_of_an_engine_without_steps_may_go_elsewhere(worker: WatchedWorker) -> None:
    """It stalls, or somebody holds it: the worker is not clearly to blame, but is not waited for without end."""
    worker.steps = False
    assert worker.run(30) == []
    assert [(each.cause, each.waited_s) for each in worker.run(1)] == 2 * [(Starvation.NO_STEPS, 31.0)]


def test_a_worker_is_believed_in_how_long_its_step_takes(worker: WatchedWorker) -> None:
    """For a minute: it may claim what it likes."""
    worker.steps = False
    worker.watch.step_allowance_s = 1e6
    assert worker.run(90) == []
    assert worker.run(1) != []


def test_steps_that_take_long_starve_nobody(worker: WatchedWorker) -> None:
    """Those of a slow engine, while the sequence waits in its queue; but a step now and then keeps it for no longer."""
    for _ in range(25):
        worker.steps = False
        assert worker.run(9, load=pb.Load(waiting=1)) == []
        worker.steps = True
        assert worker.run(1, load=pb.Load(waiting=1)) == []
    other = WatchedWorker()
    found = []
    for _ in range(2):
        other.steps = False
        found += other.run(27)
        other.steps = True
        found += other.run(1)
    assert {each.cause for each in found} == {Starvation.NO_STEPS}


def test_prompts_on_the_way_are_allowed_for(worker: WatchedWorker) -> None:
    """Those of others, and the slot's own as a whole, because its prefix may be cached no longer."""
    worker.prompts = {0: 3000}
    worker.workload.on_submit([0], 2000)
    assert worker.run(40, [1]) == []
    assert worker.run(1, [1]) == [StarvedSlot(0, 41.0, Starvation.OTHERS_ARE_SERVED)]


def test_a_slot_may_wait_in_the_engines_queue_for_longer(worker: WatchedWorker) -> None:
    """As long as the worker says that some sequence waits; but not forever."""
    queues = pb.Load(running=1, waiting=1)
    assert worker.run(300, [1], queues) == []
    assert worker.run(1, [1], queues) == [StarvedSlot(0, 301.0, Starvation.QUEUED)]


def test_a_slot_that_was_aborted_or_ended_is_not_starved(worker: WatchedWorker) -> None:
    """Nor the sequence that gets the slot next, for what it waited."""
    worker.run(25, [1])
    worker.slots.release(0)
    worker.slots.give_up(1)
    worker.slots.take(Listener())
    assert worker.run(30) == []
    assert [each.slot for each in worker.run(2)] == [0]
