"""Which announced operations are followed: those with a signature, or, without keys, those that are asked for."""

import pytest

from tests.coordinator.fleet.records import DAY, FOREIGN, KEYS, NOW, NOW_S, announcing, operation
from tokenwire.coordinator.fleet.operation_trust import OperationTrust, Unsigned
from tokenwire.peer_auth.operation_keys import OperationKeys
from tokenwire.v1 import inference_pb2 as pb

GENUINE = KEYS.sign(operation(NOW))
UNSIGNED = pb.OperationRecord(operation=operation(NOW))
RED = pb.LoraAdapter(name="red", id=7, path="/red")


def following(keys: OperationKeys | None = KEYS, unsigned: Unsigned = Unsigned.EVERYTHING) -> OperationTrust:
    """Return what a coordinator believes."""
    return OperationTrust(None if keys is None else lambda: keys, unsigned, lambda: float(NOW_S))


def believed(trust: OperationTrust, state: pb.ServingState) -> list[pb.OperationRecord]:
    """Return the records that are believed before any other was."""
    return list(trust.believed("m", state, 0))


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (UNSIGNED, "no key of ours signed"),
        (FOREIGN.sign(operation(NOW)), "no key of ours signed"),
        (pb.OperationRecord(operation=operation(NOW + 1), signatures=GENUINE.signatures), "no key of ours signed"),
        (pb.OperationRecord(operation=GENUINE.operation[:-1], signatures=GENUINE.signatures), "no key of ours signed"),
        (KEYS.sign(operation(NOW, "other")), "another model, 'other'"),
        (KEYS.sign(b"\xff"), "cannot be read"),
        (KEYS.sign(b"a" * 70_000), "70,000 bytes"),
    ],
    ids=["unsigned", "foreign", "replaced", "truncated", "another model", "garbage", "huge"],
)
def test_a_record_that_is_not_genuine_sets_its_worker_aside(record: pb.OperationRecord, reason: str) -> None:
    """And is not followed."""
    state = announcing(epoch=NOW)
    state.records.append(record)

    assert believed(following(), state) == []
    assert reason in following().problem("m", state, 0)


def test_genuine_records_are_believed_beside_others() -> None:
    """They were ordered, whoever repeats them."""
    state = announcing(UNSIGNED, GENUINE)

    assert believed(following(), state) == [GENUINE]
    assert following().problem("m", state, 0)
    assert not following().problem("m", announcing(GENUINE), 0)


def test_an_epoch_far_ahead_sets_its_worker_aside() -> None:
    """Signed or not: after the last number there would be no other operation. Clocks may differ by a day."""
    last = 2**64 - 1
    for keys in (KEYS, None):
        assert "day ahead" in following(keys).problem("m", announcing(epoch=last), 0)
        assert not following(keys).problem("m", announcing(epoch=NOW + DAY), 0)
        assert not following(keys).problem("m", announcing(epoch=NOW + 2 * DAY), NOW + DAY)
    unsigned = announcing(pb.OperationRecord(operation=operation(last)), epoch=NOW)

    assert "day ahead" in following(None).problem("m", unsigned, 0)
    assert believed(following(None), unsigned) == []
    assert believed(following(None), announcing(epoch=last)) == []


def test_a_signed_record_is_believed_whatever_our_clock() -> None:
    """That of the coordinator that made it may be wrong; then its workers announce nothing that is far ahead."""
    ahead = KEYS.sign(operation(NOW + 9 * DAY))

    assert believed(following(), announcing(ahead)) == [ahead]
    assert not following().problem("m", announcing(ahead), NOW + 9 * DAY)


def test_a_record_is_verified_once() -> None:
    """Until the keys change: states repeat all records on each change."""
    verified: list[bytes] = []

    class Counting(OperationKeys):
        def verify(self, record: pb.OperationRecord) -> bool:
            verified.append(record.operation)
            return super().verify(record)

    current = [Counting("ours" * 8)]
    trust = OperationTrust(lambda: current[0], clock=lambda: float(NOW_S))
    for _ in range(3):
        believed(trust, announcing(GENUINE))
        trust.problem("m", announcing(GENUINE), 0)
    assert len(verified) == 1

    assert not trust.reload()
    current[0] = Counting("other" * 8)

    assert trust.reload()
    assert believed(trust, announcing(GENUINE)) == []
    assert len(verified) == 2


def test_a_worker_cannot_make_a_coordinator_verify_without_end() -> None:
    """With more records than any fleet has, nothing of it is looked at."""
    state = announcing(epoch=NOW)
    state.records.extend([GENUINE] * 5_000)

    assert believed(following(), state) == []
    assert "more than 4096" in following().problem("m", state, 0)


@pytest.mark.parametrize(("unsigned", "count"), [(Unsigned.NOTHING, 0), (Unsigned.EVERYTHING, 1)])
def test_without_keys_a_coordinator_follows_what_it_is_asked_to(unsigned: Unsigned, count: int) -> None:
    """Signed or not; one that follows nothing sets nobody aside."""
    for record in (GENUINE, UNSIGNED):
        assert len(believed(following(None, unsigned), announcing(record))) == count
    assert not following(None, Unsigned.NOTHING).problem("m", announcing(epoch=2**64 - 1), 0)


def test_a_worker_without_records_stands_for_its_operations_where_no_signature_is_needed() -> None:
    """As those of older versions do; not if its state was changed by others, or its weights are inconsistent."""
    state = pb.ServingState(epoch=NOW, paused=True, weight_version="v", weights_epoch=NOW, adapters=[RED])
    (whole,) = believed(following(None), state)
    (adapters,) = believed(following(None, Unsigned.ADAPTERS), state)

    found = pb.Operation.FromString(whole.operation)
    assert (found.epoch, found.pause.paused, found.weights.epoch, found.weight_version) == (NOW, True, NOW, "v")
    assert list(found.adapters.adapters) == [RED]
    assert not pb.Operation.FromString(adapters.operation).HasField("pause")
    assert believed(following(KEYS), state) == []
    for changed in ({"unmanaged": True}, {"weights_fault": "torn"}):
        assert believed(following(None), pb.ServingState(epoch=NOW, **changed)) == []


def test_records_are_signed_by_the_key_that_signs_now() -> None:
    """So that those of a key that is replaced outlive it."""
    new, both = OperationKeys("new!" * 8), OperationKeys("\n".join(["new!" * 8, "ours" * 8]))

    assert new.verify(following(both).renew(GENUINE))
    assert new.verify(following(both).sign(b"operation"))
    assert following(None).renew(GENUINE) == GENUINE
    assert not following(None).sign(b"operation").signatures


def test_large_states_are_judged_once() -> None:
    """Routing asks again and again; what is remembered of them is bounded together."""
    state = announcing(*[GENUINE] * 4000, epoch=NOW)
    trust = Counting(lambda: KEYS, Unsigned.EVERYTHING, lambda: float(NOW_S))
    for _ in range(3):
        assert not trust.problem("m", state, 0)
    assert trust.judged == 4000

    large = [pb.ServingState(epoch=NOW, records=[GENUINE], weights_path="p" * 2**20) for _ in range(65)]
    for each in (*large, *large[1:]):
        trust.problem("m", each, 0)
    assert trust.judged == 4000 + 2 * 65 - 1


class Counting(OperationTrust):
    """Counts the records that are judged."""

    judged = 0

    def _judge(self, model: str, record: pb.OperationRecord) -> tuple[str, int]:
        self.judged += 1
        return super()._judge(model, record)
