"""Versions are ordered by the operations that set their labels, whoever hears of them, and when."""

from tokenwire.coordinator.fleet.weight_versions import WeightVersions, version_epoch_of
from tokenwire.protocol.operation_records import fold, latest
from tokenwire.protocol.weight_limits import WeightLimits
from tokenwire.v1 import inference_pb2 as pb


def record_of_operation(operation: pb.Operation) -> pb.OperationRecord:
    """Return an operation's record."""
    return pb.OperationRecord(operation=operation.SerializeToString())


def load(versions: WeightVersions, epoch: int, label: str) -> pb.OperationRecord:
    """Return the record of an operation that loads weights, by a coordinator that knows some versions."""
    weights = pb.Weights(epoch=epoch, path=f"/{label}")
    earlier = versions.passed_on()
    return record_of_operation(
        pb.Operation(epoch=epoch, weights=weights, weight_version=label, earlier_versions=earlier)
    )


def observe(versions: WeightVersions, *records: pb.OperationRecord) -> pb.ServingState:
    """Let a coordinator hear of what these records lead to, and return it."""
    state = fold(latest(records))
    versions.observe(state)
    return state


def test_versions_lag_behind_newer_ones() -> None:
    """A version lags behind by those that operations have made since."""
    versions = WeightVersions()
    for epoch in (10, 20, 30):
        state = observe(versions, load(versions, epoch, f"step_{epoch}"))

    assert [versions.lag(epoch) for epoch in (0, 10, 20, 30)] == [3, 2, 1, 0]
    assert version_epoch_of(state) == 30
    assert versions.admits(WeightLimits(max_lag=1), 20)
    assert not versions.admits(WeightLimits(max_lag=1), 10)
    assert versions.admits(WeightLimits("step_20"), 30)
    assert not versions.admits(WeightLimits("step_20"), 10)
    assert not versions.admits(WeightLimits("step_40"), 30)


def test_who_starts_later_knows_the_versions_before() -> None:
    """A record has the versions before its own, so a coordinator that has just started knows them."""
    first, later = WeightVersions(), WeightVersions()
    first.observe_initial("default")
    for epoch in (10, 20, 30):
        newest = load(first, epoch, f"step_{epoch}")
        observe(first, newest)
    observe(later, newest)

    assert [later.lag(epoch) for epoch in (0, 10, 20, 30)] == [3, 2, 1, 0]
    assert [later.epoch_of(label) for label in ("default", "step_10", "step_30")] == [0, 10, 30]


def test_a_repeated_label_is_no_new_version() -> None:
    """Weights that are labelled again as they were do not count; others under the same label do."""
    versions = WeightVersions()
    loaded = load(versions, 10, "step")
    observe(versions, loaded)
    observe(versions, loaded, record_of_operation(pb.Operation(epoch=20, weight_version="step")))
    assert versions.lag(10) == 0

    transferred = record_of_operation(pb.Operation(epoch=30, weights=pb.Weights(epoch=30)))
    observe(versions, transferred, record_of_operation(pb.Operation(epoch=40, weight_version="step")))
    assert versions.lag(10) == 1


def test_a_label_that_was_used_again_is_that_of_the_newer_operation() -> None:
    """After going back to older weights, their version is the newest one."""
    versions = WeightVersions()
    for epoch, label in ((10, "step_1"), (20, "step_2"), (30, "step_1")):
        observe(versions, load(versions, epoch, label))

    assert versions.admits(WeightLimits("step_2"), 30)
    assert not versions.admits(WeightLimits("step_1"), 20)


def test_records_that_cannot_be_read_have_no_version() -> None:
    """A worker may announce anything."""
    state = pb.ServingState(records=[pb.OperationRecord(operation=b"\xff\xff")])

    assert version_epoch_of(state) == 0


def test_what_is_passed_on_is_bounded() -> None:
    """Long labels of clients do not make records long, which workers repeat."""
    versions = WeightVersions()
    for epoch in range(1, 100):
        observe(versions, load(versions, epoch, f"{epoch}" + "x" * 500))

    assert sum(version.ByteSize() for version in versions.passed_on()) <= 16 * 1024
    assert versions.passed_on()[-1].epoch == 99


def test_the_whole_state_of_an_older_worker_is_no_new_version() -> None:
    """Its record names the label that workers started with, whatever the operation was."""
    versions = WeightVersions()
    whole = pb.Operation(epoch=10, adapters=pb.AdapterSet(), weights=pb.Weights(), weight_version="default")
    observe(versions, record_of_operation(whole))

    assert versions.lag(0) == 0
