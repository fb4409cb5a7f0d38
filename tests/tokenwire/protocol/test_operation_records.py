"""Records of operations: which are kept, and what they lead to."""

import itertools

from tokenwire.protocol.operation_records import MAX_SIGNATURES, fold, latest
from tokenwire.v1 import inference_pb2 as pb

RED, BLUE = pb.LoraAdapter(name="red", id=7, path="/red"), pb.LoraAdapter(name="blue", id=3, path="/blue")


def ordered(epoch: int, *signatures: bytes, **fields: object) -> pb.OperationRecord:
    """Return the record of an operation."""
    operation = pb.Operation(model="m", epoch=epoch, **fields)  # type: ignore[arg-type]
    return pb.OperationRecord(operation=operation.SerializeToString(deterministic=True), signatures=signatures)


LOAD = ordered(4, weights=pb.Weights(epoch=4, path="/new"), weight_version="new")
LABEL = ordered(5, weight_version="label")
PAUSE = ordered(6, pause=pb.PauseState(paused=True))
RESUME = ordered(7, pause=pb.PauseState())


def test_the_newest_operation_decides_what_it_sets_and_nothing_else() -> None:
    """In whatever order records come: the operations of two coordinators do not undo each other."""
    for order in itertools.permutations([LOAD, LABEL, PAUSE, RESUME]):
        kept = latest(order)
        state = fold(kept)

        assert kept == [LOAD, LABEL, RESUME]
        assert (state.weights_epoch, state.weights_path, state.weight_version) == (4, "/new", "label")
        assert (state.paused, state.epoch) == (False, 7)
        assert list(state.records) == kept


def test_an_operation_that_sets_nothing_is_kept_while_it_is_the_newest() -> None:
    """A stage of a transfer: workers that have not carried it out are told from those that have."""
    stage = ordered(8)

    assert latest([stage, PAUSE]) == [PAUSE, stage]
    assert latest([stage, PAUSE, ordered(9)]) == [PAUSE, ordered(9)]
    assert fold([PAUSE, stage]).epoch == 8


def test_each_adapter_is_decided_by_itself() -> None:
    """One that was unloaded stays so, although an older record would load it; another one replaces it by its name."""
    loads = [ordered(1, load_adapter=RED), ordered(2, load_adapter=BLUE)]
    newer = pb.LoraAdapter(name="red", id=9, path="/red-2")
    unload, reload = ordered(3, unload_adapter="red"), ordered(4, load_adapter=newer)

    assert list(fold(latest(loads)).adapters) == [BLUE, RED]
    assert list(fold(latest([unload, *loads])).adapters) == [BLUE]
    assert list(fold(latest([unload, reload, *loads])).adapters) == [BLUE, newer]


def test_unloaded_adapters_are_remembered_up_to_a_number() -> None:
    """A trainer that loads each step under a new name makes no state grow without end."""
    unloads = [ordered(epoch, unload_adapter=f"step {epoch}") for epoch in range(1, 1_000)]

    kept = latest([LOAD, *unloads])

    assert len(kept) == 257
    assert kept[0] == LOAD
    assert kept[-1] == unloads[-1]


def test_copies_of_a_record_are_one_with_their_signatures() -> None:
    """Those of keys that replace each other, the newest first, up to a number."""
    (merged,) = latest([ordered(1, b"new"), ordered(1, b"old"), ordered(1, b"new")])
    (bounded,) = latest(ordered(1, bytes([number])) for number in range(9))

    assert list(merged.signatures) == [b"new", b"old"]
    assert len(bounded.signatures) == MAX_SIGNATURES


def test_a_whole_state_stands_for_operations_without_records() -> None:
    """It replaces older adapters; where the operation's own record is known, that says better what it was."""
    whole = ordered(6, adapters=pb.AdapterSet(adapters=[RED]), pause=pb.PauseState())

    assert list(fold(latest([ordered(2, load_adapter=BLUE), whole])).adapters) == [RED]
    assert latest([whole, PAUSE]) == [PAUSE]


def test_a_state_is_led_on_from_another_one() -> None:
    """Where no record decides, what it has stays."""
    base = pb.ServingState(epoch=9, paused=True, weight_version="initial", adapters=[RED])

    state = fold([ordered(3, load_adapter=BLUE)], base)

    assert (state.epoch, state.paused, state.weight_version) == (9, True, "initial")
    assert list(state.adapters) == [BLUE, RED]
