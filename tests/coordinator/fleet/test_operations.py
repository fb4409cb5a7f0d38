"""What operations set."""

import pytest

from tokenwire.coordinator.fleet import operations
from tokenwire.v1 import inference_pb2 as pb

RUNNING = pb.ServingState()
ASLEEP = pb.ServingState(paused=True, sleeping=True, sleep_level=1)
HALF_AWAKE = pb.ServingState(paused=True, sleeping=True, sleep_level=1, awake_parts=["weights"])


def test_a_pause_leaves_an_engine_asleep() -> None:
    """Only `wake_up` and `resume` wake it."""
    assert operations.pause(RUNNING).pause == pb.PauseState(paused=True)
    assert operations.pause(HALF_AWAKE).pause == pb.PauseState(
        paused=True, sleeping=True, sleep_level=1, awake_parts=["weights"]
    )
    assert operations.resume().HasField("pause")
    assert operations.resume().pause == pb.PauseState()


@pytest.mark.parametrize(
    ("before", "tags", "awake"),
    [
        (ASLEEP, ["weights"], ["weights"]),
        (HALF_AWAKE, ["weights"], ["weights"]),
        (ASLEEP, [], None),
        (HALF_AWAKE, ["kv_cache"], None),
        (pb.ServingState(paused=True), ["weights"], None),
        (pb.ServingState(paused=True, sleeping=True), ["scheduling"], None),
    ],
)
def test_an_engine_runs_once_all_of_it_is_awake(
    before: pb.ServingState, tags: list[str], awake: list[str] | None
) -> None:
    """One that was only paused runs whatever is woken, as in vLLM."""
    pause = operations.wake_up(before, tags).pause

    assert (pause.paused, list(pause.awake_parts)) == (awake is not None, awake or [])


def test_only_two_stages_of_a_transfer_set_something() -> None:
    """The update brings weights, the end their label, if it is given."""
    update = operations.transfer(5, "update", {})

    assert update == pb.Operation(weights=pb.Weights(epoch=5))
    assert operations.transfer(5, "finish", {"weight_version": "v"}) == pb.Operation(weight_version="v")
    for stage in ("init", "start", "start_draft", "finish", "shutdown"):
        assert operations.transfer(5, stage, {}) == pb.Operation()


def test_weights_of_the_start_have_no_operation() -> None:
    """So that workers that have just started have them."""
    loaded, initial = operations.load_weights(5, "/new", "v"), operations.load_weights(5, "", "")

    assert (loaded.weights.epoch, loaded.weights.path, loaded.weight_version) == (5, "/new", "v")
    assert (initial.weights, initial.HasField("weights"), initial.HasField("weight_version")) == (
        pb.Weights(),
        True,
        True,
    )
