"""The desired state of a model, and which workers are out of sync with it.

One file, since all tests are of one class and its states.
"""

from collections.abc import Callable

import pytest

from tests.coordinator.fleet.records import FOREIGN, KEYS, NOW, NOW_S, announcing, operation
from tokenwire.coordinator.fleet.desired_state import DesiredStates
from tokenwire.coordinator.fleet.operation_trust import OperationTrust, Unsigned
from tokenwire.peer_auth.operation_keys import OperationKeys
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

        found = desired.get("m")
        assert found is not None
        assert list(found.adapters) == [RED]
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


PAUSE = KEYS.sign(operation(NOW, pause=pb.PauseState(paused=True)))
RESUME = KEYS.sign(operation(NOW + 2, pause=pb.PauseState()))
LABEL = KEYS.sign(operation(NOW + 1, weight_version="label"))
LOAD = KEYS.sign(operation(NOW, weights=pb.Weights(epoch=NOW, path="/new"), weight_version="new"))


def signing(keys: Callable[[], OperationKeys] = lambda: KEYS) -> DesiredStates:
    """Return the desired states of a coordinator with keys."""
    return DesiredStates(trust=OperationTrust(keys, clock=lambda: float(NOW_S)))


def unsigned(follows: Unsigned) -> DesiredStates:
    """Return the desired states of a coordinator without a key."""
    return DesiredStates(trust=OperationTrust(unsigned=follows, clock=lambda: float(NOW_S)))


def test_what_a_worker_announces_beyond_its_records_is_its_own_drift() -> None:
    """It is no command to others: it gets no requests, and is to adopt what was ordered."""
    desired = signing()
    desired.observe("m", announcing(LABEL, weight_version="label"))
    liar = announcing(LABEL, weight_version="label", paused=True, weights_epoch=NOW + 1, weights_path="/hostile")

    assert not desired.observe("m", liar)
    assert not desired.set_aside("m", liar)
    assert desired.out_of_sync("m", liar)
    assert desired.has_drifted("m", liar)
    assert desired.target("m", liar) == pb.ServingState(epoch=NOW + 1, weight_version="label", records=[LABEL])


@pytest.mark.parametrize("epoch", [NOW + 9, 2**64 - 1])
def test_a_made_up_state_sets_its_worker_aside_and_nobody_else(epoch: int) -> None:
    """With a record that no coordinator made, or with none. The next operation has a number of its own."""
    record = pb.OperationRecord(operation=operation(epoch), signatures=[b"made up"])
    for records in ([], [record]):
        desired = signing()
        desired.observe("m", announcing(RESUME))
        liar = announcing(*records, epoch=epoch, paused=True)

        assert not desired.observe("m", liar)
        assert "it is set aside" in desired.out_of_sync("m", liar)
        assert not desired.has_drifted("m", liar)
        assert not desired.out_of_sync("m", announcing(RESUME))
        assert NOW + 2 < desired.next_epoch("m") < NOW + (10 << 16)


def test_an_old_operation_that_is_repeated_brings_no_old_state_back() -> None:
    """Where the newer one is known. One that has just started and hears of no other worker cannot know better."""
    desired, started = signing(), signing()
    desired.observe("m", announcing(RESUME))
    replay = announcing(PAUSE, paused=True)

    assert not desired.observe("m", replay)
    assert desired.has_drifted("m", replay)
    assert started.observe("m", replay)
    assert started.observe("m", announcing(RESUME))
    assert started.get("m") == desired.get("m")


def test_operations_of_two_coordinators_hold_both() -> None:
    """Although each worker has carried out but one of them."""
    desired = signing()
    one, other = announcing(LOAD, weights_epoch=NOW, weights_path="/new", weight_version="new"), announcing(LABEL)
    for state in (one, other):
        desired.observe("m", state)
    found = desired.get("m")

    assert found is not None
    assert (found.weights_path, found.weight_version) == ("/new", "label")
    assert desired.has_drifted("m", one)
    assert desired.has_drifted("m", other)


def test_a_worker_without_records_is_followed_no_further_than_records_of_others() -> None:
    """As of an older version. One that carried out an operation of which there is no record is set aside with a
    reason; not if it has what is desired, or missed an operation."""
    desired = signing()
    desired.observe("m", announcing(PAUSE, paused=True))

    assert not desired.out_of_sync("m", announcing(epoch=NOW + 1, paused=True))
    assert "no record" in desired.out_of_sync("m", announcing(epoch=NOW + 1))
    assert desired.has_drifted("m", announcing(epoch=NOW))
    assert desired.has_drifted("m", announcing())
    assert not desired.out_of_sync("m", announcing(epoch=NOW, paused=True))


def test_a_worker_keeps_the_label_that_nobody_ordered() -> None:
    """Workers may be started with different ones."""
    desired = signing()
    desired.observe("m", announcing(RESUME))
    other = announcing(RESUME, weight_version="its own")

    assert desired.target("m", other).weight_version == "its own"
    assert not desired.has_drifted("m", other)
    assert not desired.out_of_sync("m", other)


def test_keys_are_rotated_without_setting_workers_aside() -> None:
    """All coordinators accept the new one, then sign with it, then drop the old one."""
    old, new = "ours" * 8, "next" * 8
    current = [OperationKeys(old)]
    desired = signing(lambda: current[0])
    worker = announcing(PAUSE, paused=True)
    desired.observe("m", worker)
    for text in (f"{old}\n{new}", f"{new}\n{old}", new):
        current[0] = OperationKeys(text)
        assert desired.reload_keys()
        assert not desired.set_aside("m", worker)
        if desired.has_drifted("m", worker):  # it adopts what it has, with the new signature
            worker.records[0].signatures.extend(desired.target("m", worker).records[0].signatures)

    assert OperationKeys(new).verify(worker.records[0])
    assert not desired.has_drifted("m", worker)


def test_a_worker_of_another_key_is_believed_once_that_is_added() -> None:
    """Its reason says so."""
    current = [KEYS]
    desired = signing(lambda: current[0])
    foreign = announcing(FOREIGN.sign(operation(NOW)), paused=True)
    assert not desired.observe("m", foreign)
    assert "Add the key" in desired.out_of_sync("m", foreign)

    current[0] = OperationKeys("\n".join(["ours" * 8, "foreign" * 8]))
    desired.reload_keys()

    assert desired.observe("m", foreign)
    assert not desired.out_of_sync("m", foreign)


def test_a_coordinator_without_a_key_and_admin_routes_adopts_nothing() -> None:
    """It leaves all workers as they are, and sends requests to those that run."""
    desired = unsigned(Unsigned.NOTHING)
    loaded = announcing(LOAD, weights_epoch=NOW, weights_path="/new", weight_version="new")
    paused = announcing(PAUSE, paused=True)

    assert not desired.observe("m", loaded)
    assert not desired.observe("m", paused)
    assert not desired.out_of_sync("m", loaded)
    assert "paused" in desired.out_of_sync("m", paused)
    assert not any(desired.has_drifted("m", each) for each in (loaded, paused))


def test_a_coordinator_with_adapter_routes_alone_follows_adapters() -> None:
    """And leaves everything else of a worker as it is."""
    desired = unsigned(Unsigned.ADAPTERS)
    load = pb.OperationRecord(operation=operation(NOW + 3, load_adapter=RED))
    desired.observe("m", announcing(load, PAUSE, adapters=[RED], paused=True))
    fresh = announcing(paused=True, weights_epoch=NOW, weights_path="/new", weight_version="new")

    assert desired.adapter("red") is not None
    target = desired.target("m", fresh)
    assert (list(target.adapters), target.paused, target.weights_path) == ([RED], True, "/new")
    assert desired.has_drifted("m", fresh)


def test_a_desired_epoch_that_would_go_back_is_a_fault() -> None:
    """It is not assigned: workers would be reconciled to what is over."""
    desired = DesiredStates()
    desired._desired["m"] = pb.ServingState(epoch=9)
    with pytest.raises(AssertionError, match="goes back"):
        desired.observe("m", state(5, paused=True))


def test_only_a_pause_that_was_ordered_holds_the_requests_of_a_worker() -> None:
    """Asleep is held as well; one that says so though nobody ordered it is not, nor one that goes on."""
    ordered, alone = DesiredStates(), DesiredStates()
    ordered.observe("m", state(5, paused=True))

    assert [ordered.holds("m", state(5, **{held: True})) for held in ("paused", "sleeping")] == [True, True]
    assert not ordered.holds("m", state(5))
    assert not alone.holds("m", state(paused=True))

    ordered.observe("m", state(6))
    assert not ordered.holds("m", state(5, paused=True))
