"""The desired state of a model, and which workers are out of sync with it."""

import pytest

from tokenwire.coordinator.fleet.desired_state import DesiredStates
from tokenwire.v1 import inference_pb2 as pb

RED = pb.LoraAdapter(name="red", id=7, path="/red")


def state(epoch: int = 0, **fields: object) -> pb.ServingState:
    """Return a worker's state."""
    return pb.ServingState(epoch=epoch, revision=9, weight_version="v", **fields)  # type: ignore[arg-type]


def test_the_newest_state_is_the_desired_one() -> None:
    """In any order and from any worker; a model without admin operations has none."""
    desired = DesiredStates()
    assert not desired.observe("m", state())
    assert desired.get("m") is None

    assert desired.observe("m", state(5, paused=True))
    assert not desired.observe("m", state(4))

    target = desired.get("m")
    assert target is not None
    assert (target.epoch, target.paused, target.revision) == (5, True, 0)
    assert desired.get("other") is None


def test_concurrent_operations_lead_to_one_desired_state() -> None:
    """Of two states with one epoch all coordinators choose the same, in whatever order they are announced."""
    one, two = state(5, paused=True), state(5, adapters=[RED])
    first, second = DesiredStates(), DesiredStates()
    for desired, announced in ((first, (one, two)), (second, (two, one))):
        for each in announced:
            desired.observe("m", each)

    assert first.get("m") == second.get("m")


@pytest.mark.parametrize("version", ["a", "z"])
def test_a_worker_that_missed_an_update_of_weights_does_not_undo_it(version: str) -> None:
    """If an operation of another coordinator runs at once, and so reaches it without the update."""
    updated, missed = state(5, weights_epoch=4, weights_path="/new"), state(5)
    updated.weight_version = version
    for announced in ((updated, missed), (missed, updated)):
        desired = DesiredStates()
        for each in announced:
            desired.observe("m", each)

        assert desired.out_of_sync("m", missed)
        assert not desired.out_of_sync("m", updated)


def test_fields_of_a_newer_protocol_are_no_drift() -> None:
    """A newer worker announces its adapter with a field that is unknown here; an older one never will."""
    newer = state(5, adapters=[RED])
    newer.adapters[0].MergeFromString(b"\xc2\x3e\x03new")
    assert newer != state(5, adapters=[RED])
    for announced in ((newer, state(5, adapters=[RED])), (state(5, adapters=[RED]), newer)):
        desired = DesiredStates()
        for each in announced:
            desired.observe("m", each)

        assert desired.get("m") == pb.ServingState(epoch=5, weight_version="v", adapters=[RED])
        assert not any(desired.has_drifted("m", each) for each in announced)


@pytest.mark.parametrize("fields", [{"unmanaged": True}, {"weights_fault": "torn"}])
def test_unmanaged_and_faulty_states_are_not_desired(fields: dict[str, object]) -> None:
    """Those changed outside admin operations, or with inconsistent weights."""
    desired = DesiredStates()

    assert not desired.observe("m", state(5, **fields))


def test_epochs_increase_and_are_unique_to_a_coordinator() -> None:
    """A new epoch is above all that were seen or issued, and two coordinators never issue the same."""
    one, two = DesiredStates(), DesiredStates()
    one._nonce, two._nonce = 1, 2
    seen = one.next_epoch("m")
    two.observe("m", state(seen))

    assert one.next_epoch("m") > seen
    assert two.next_epoch("m") > seen
    assert one.next_epoch("m") != two.next_epoch("m")


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({}, ""),
        ({"adapters": [RED]}, ""),
        ({"weights_epoch": 4}, "weights"),
        ({"paused": True}, "paused"),
        ({"weights_fault": "torn"}, "torn"),
    ],
)
def test_workers_unlike_the_desired_state_are_out_of_sync(fields: dict[str, object], reason: str) -> None:
    """Other weights, another pause state or inconsistent weights; an additional or missing adapter does not matter."""
    desired = DesiredStates()
    desired.observe("m", state(5))

    out_of_sync = desired.out_of_sync("m", state(3, **fields))

    assert (reason in out_of_sync) if reason else not out_of_sync


def test_stale_weights_may_be_allowed() -> None:
    """Then only the pause state counts."""
    desired = DesiredStates(stale_weights=True)
    desired.observe("m", state(5, weights_epoch=5))

    assert not desired.out_of_sync("m", state(3))
    assert desired.out_of_sync("m", state(3, paused=True))


def test_an_adapter_needs_a_worker_that_has_loaded_it() -> None:
    """Adapters are found by name, and only workers with that id take their requests."""
    desired = DesiredStates()
    desired.observe("m", state(5, adapters=[RED]))
    adapter = desired.adapter("red")

    assert adapter is not None
    assert (adapter.model, adapter.lora) == ("m", RED)
    assert desired.adapter("blue") is None
    assert not desired.out_of_sync("m", state(5, adapters=[RED]), adapter_id=7)
    assert "adapter" in desired.out_of_sync("m", state(5), adapter_id=7)
    assert desired.new_adapter_id(6) != 7
