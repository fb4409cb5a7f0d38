"""Requests with limits on the age of weights are watched, until they end; others are left alone."""

from collections.abc import Sequence

import pytest

from tests.coordinator.fleet.test_weight_versions import load
from tests.workers import Listener
from tokenwire.coordinator.fleet.desired_state import DesiredStates
from tokenwire.coordinator.fleet.freshness.freshness import Freshness
from tokenwire.coordinator.fleet.operation_trust import OperationTrust, Unsigned
from tokenwire.coordinator.fleet.request_handle import NEW, ChoiceHandle, Placement, RequestHandle
from tokenwire.coordinator.fleet.slots import SlotListener
from tokenwire.coordinator.fleet.submission import Submission
from tokenwire.errors import InvalidRequest, Overloaded
from tokenwire.protocol.weight_limits import WeightLimits
from tokenwire.v1 import inference_pb2 as pb

MODEL = "m"


class Below:
    """A fleet that keeps what it gets."""

    def __init__(self) -> None:
        self.listeners: list[SlotListener] = []
        self.placements: list[Placement] = []
        self.aborted = 0

    def check_open(self, model: str, adapter_id: int, placement: Placement = NEW, sequences: int = 1) -> None:
        """Admit everything."""

    def submit(
        self, model: str, submission: Submission, listeners: Sequence[SlotListener], placement: Placement = NEW
    ) -> ChoiceHandle:
        """Keep a request."""
        self.listeners += listeners
        self.placements.append(placement)
        return self

    def abort(self) -> None:
        """Count it."""
        self.aborted += 1

    def abort_one(self, listener: SlotListener) -> None:
        """Count it."""
        self.aborted += 1

    def explain(self) -> str:
        """Return no worker."""
        return ""


class LayerScene:
    """The layer above such a fleet."""

    def __init__(self, unsigned: Unsigned = Unsigned.EVERYTHING) -> None:
        self.below = Below()
        self.desired = DesiredStates(trust=OperationTrust(unsigned=unsigned))
        self.freshness = Freshness(self.below, self.desired)

    def submit(self, limits: WeightLimits | None, tenant: str = "") -> tuple[Listener, RequestHandle]:
        """Submit a request; return its listener and its handle."""
        listener = Listener()
        placement = Placement(tenant=tenant, weights=limits)
        self.freshness.check_open(MODEL, 0, placement)
        return listener, self.freshness.submit(MODEL, Submission(), [listener], placement)

    def update(self, epoch: int, label: str) -> None:
        """Let a worker announce newer weights."""
        state = pb.ServingState(epoch=epoch, records=[load(self.desired.versions(MODEL), epoch, label)])
        record = pb.Operation.FromString(state.records[0].operation)
        record.model = MODEL
        state.records[0].operation = record.SerializeToString()
        assert self.desired.observe(MODEL, state)
        self.freshness.on_workers_changed(MODEL)


def test_requests_without_limits_pass_untouched() -> None:
    """They cost nothing: the fleet gets their own listener."""
    scene = LayerScene()
    listener, _ = scene.submit(None)

    assert scene.below.listeners == [listener]


def test_an_update_ends_what_it_leaves_behind() -> None:
    """Running sequences end with abort, those within their limit and those without tokens do not."""
    scene = LayerScene()
    behind, _ = scene.submit(WeightLimits(max_lag=0))
    within, _ = scene.submit(WeightLimits(max_lag=1))
    unborn, _ = scene.submit(WeightLimits(max_lag=0))
    for listener in scene.below.listeners[:2]:
        listener.step([1], None)
    scene.update(10, "step_1")

    assert scene.below.aborted == 1
    assert behind.finish is not None
    assert behind.finish.reason == pb.FINISH_REASON_ABORT
    assert within.finish is None
    assert unborn.finish is None
    assert scene.freshness.expired == {MODEL: 1}
    assert scene.below.listeners[0].step([2], None)
    assert behind.token_ids == [1]


def test_an_aborted_request_is_not_ended_again() -> None:
    """Its client is gone, and its handle was called."""
    scene = LayerScene()
    listener, handle = scene.submit(WeightLimits(max_lag=0))
    scene.below.listeners[0].step([1], None)
    handle.abort()
    scene.update(10, "step_1")

    assert scene.below.aborted == 1
    assert listener.finish is None


def test_only_a_version_that_is_awaited_concerns_the_queue() -> None:
    """Where all workers that take requests have the newest weights, there is nothing to wait for."""
    scene = LayerScene()
    scene.update(10, "step_1")
    scene.submit(WeightLimits(min_version="step_1", max_lag=0))
    scene.submit(WeightLimits(min_version="step_2"))

    assert [each.weights for each in scene.below.placements] == [None, WeightLimits(min_version="step_2")]


def test_not_any_number_of_versions_is_awaited() -> None:
    """Each is a queue of its own; a request that ends makes room."""
    scene = LayerScene()
    handles = [scene.submit(WeightLimits(min_version=f"v{number}"))[1] for number in range(64)]
    scene.submit(WeightLimits(min_version="v3"))
    with pytest.raises(Overloaded, match="min_weight_version"):
        scene.submit(WeightLimits(min_version="v64"))
    handles[0].abort()

    scene.submit(WeightLimits(min_version="v64"))


def test_a_tenant_leaves_others_versions_to_wait_for() -> None:
    """Half of what others leave it; what it waits for already counts once."""
    scene = LayerScene()
    for number in range(32):
        scene.submit(WeightLimits(min_version=f"greedy {number}"), "greedy")
    scene.submit(WeightLimits(min_version="greedy 0"), "greedy")
    for tenant, most in (("greedy", 0), ("second", 16), ("third", 8)):
        for number in range(most):
            scene.submit(WeightLimits(min_version=f"{tenant} {number}"), tenant)
        with pytest.raises(Overloaded, match="min_weight_version"):
            scene.submit(WeightLimits(min_version=f"{tenant} more"), tenant)
        scene.submit(WeightLimits(min_version="greedy 0"), tenant)


def test_limits_need_to_know_the_weights() -> None:
    """A coordinator that follows no updates refuses them."""
    scene = LayerScene(Unsigned.NOTHING)

    with pytest.raises(InvalidRequest, match="--enable-rl") as caught:
        scene.submit(WeightLimits(min_version="step_1"))
    assert caught.value.param == "min_weight_version"
