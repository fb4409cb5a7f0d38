"""A sequence ends before a token that is too old, and not before one that is not."""

import pytest

from tests.coordinator.fleet.test_weight_versions import load, observe
from tests.workers import Listener, accept
from tokenwire.coordinator.fleet.freshness.limited_sequence import LimitedSequence
from tokenwire.coordinator.fleet.session import WorkerSession
from tokenwire.coordinator.fleet.weight_versions import WeightVersions
from tokenwire.protocol.weight_limits import WeightLimits
from tokenwire.v1 import inference_pb2 as pb


class SequenceScene:
    """One sequence on one worker, whose weights change."""

    def __init__(self, limits: WeightLimits) -> None:
        self.versions = WeightVersions()
        self.listener = Listener()
        self.too_old: list[bool] = []
        self.sequence = LimitedSequence(
            self.listener, limits, self.versions, lambda sequence, too_old: self.too_old.append(too_old)
        )
        self.worker = WorkerSession("worker", "test", accept)
        self.worker.serving = pb.ServingState(weight_version="default")
        self.sequence.session = self.worker
        self.sequence.weights("default")

    def order(self, epoch: int, label: str) -> None:
        """Let the model have a newer version, which this worker does not have yet."""
        observe(self.versions, load(self.versions, epoch, label))

    def announce(self, epoch: int, label: str) -> None:
        """Let the worker announce it."""
        self.worker.version_epoch, self.worker.serving.weight_version = epoch, label


@pytest.fixture
def scene() -> SequenceScene:
    """A sequence that may not lag behind."""
    return SequenceScene(WeightLimits(max_lag=0))


def test_it_ends_at_a_token_of_newer_weights(scene: SequenceScene) -> None:
    """The worker's first token of new weights comes before the news of them: it is not passed on."""
    assert not scene.sequence.step([1, 2], None)
    scene.sequence.weights("step_1")

    assert scene.sequence.step([3], None)
    assert scene.listener.token_ids == [1, 2]
    assert scene.listener.finish is not None
    assert scene.listener.finish.reason == pb.FINISH_REASON_ABORT
    assert scene.too_old == [True]


def test_one_without_tokens_begins_with_the_new_weights(scene: SequenceScene) -> None:
    """Its first token is as new as can be, though nobody has said yet of which operation."""
    scene.sequence.weights("step_1")
    assert not scene.sequence.step([1], None)
    scene.order(10, "step_1")
    scene.announce(10, "step_1")
    assert not scene.sequence.step([2], None)

    assert not scene.sequence.is_too_old()
    assert scene.listener.token_ids == [1, 2]


def test_it_is_too_old_once_another_worker_has_newer_weights(scene: SequenceScene) -> None:
    """What counts is the newest version of the model, and not that of its worker."""
    scene.sequence.step([1], None)
    scene.order(10, "step_1")

    assert scene.sequence.is_too_old()
    scene.sequence.expire()
    assert scene.listener.finish is not None
    assert scene.sequence.step([2], None)
    assert scene.listener.token_ids == [1]
    assert scene.too_old == [True]


def test_a_first_token_of_old_weights_is_not_passed_on(scene: SequenceScene) -> None:
    """It waited on a worker that has not been updated yet."""
    scene.order(10, "step_1")

    assert not scene.sequence.is_too_old()
    assert scene.sequence.step([1], None)
    assert scene.listener.token_ids == []


def test_within_its_limit_it_goes_on() -> None:
    """One version of lag is allowed, a second is not."""
    scene = SequenceScene(WeightLimits(max_lag=1))
    for epoch in (10, 20):
        assert not scene.sequence.step([epoch], None)
        scene.order(epoch, f"step_{epoch}")
        scene.announce(epoch, f"step_{epoch}")
        scene.sequence.weights(f"step_{epoch}")

    assert scene.sequence.is_too_old()
    assert scene.listener.token_ids == [10, 20]


def test_a_resumed_one_is_judged_by_its_next_tokens(scene: SequenceScene) -> None:
    """Another worker's older label, before it has sent anything, ends nothing."""
    scene.order(10, "step_1")
    scene.announce(10, "step_1")
    scene.sequence.weights("step_1")
    scene.sequence.step([1], None)
    scene.sequence.weights("default")
    scene.sequence.weights("step_1")

    assert not scene.sequence.step([2], None)


def test_the_least_version_is_kept_to() -> None:
    """Tokens of weights before a version are not passed on."""
    scene = SequenceScene(WeightLimits(min_version="step_1"))
    scene.order(10, "step_1")

    assert scene.sequence.step([1], None)
    assert scene.listener.token_ids == []
