"""The status of workers, from what they announced."""

from typing import Any

import pytest

from tokenwire.coordinator.fleet.status import WorkerStatus, common_version
from tokenwire.v1 import inference_pb2 as pb

SERVING = pb.ServingState(weight_version="v2", weights_path="/step_2", epoch=7, adapters=[pb.LoraAdapter(name="red")])


def status(session: str = "ready", reason: str = "", **serving: Any) -> WorkerStatus:
    """Return the status of a worker."""
    announced = pb.ServingState(**serving)
    announced.MergeFrom(SERVING)
    return WorkerStatus("one:1", session, announced, reason, "")


@pytest.mark.parametrize(
    ("serving", "state"),
    [({}, "running"), ({"paused": True}, "paused"), ({"paused": True, "sleeping": True}, "sleeping")],
)
def test_sleeping_counts_before_pausing(serving: dict[str, Any], state: str) -> None:
    """A sleeping worker is paused too."""
    assert status(**serving).pause_state == state


def test_a_version_is_common_if_all_connected_workers_have_it() -> None:
    """A lost one does not count; two versions are none."""
    other = WorkerStatus("two:1", "ready", pb.ServingState(weight_version="v3"), "", "")
    lost = WorkerStatus("two:1", "connecting", pb.ServingState(weight_version="v3"), "", "")

    assert common_version([status(), status(), lost]) == "v2"
    assert common_version([status(), other]) is None
    assert common_version([lost]) is None


def test_the_origin_of_weights_follows_from_what_brought_them() -> None:
    """A directory has a path, a transfer has none."""
    origins = {
        "start": pb.ServingState(epoch=3),
        "directory": pb.ServingState(epoch=3, weights_epoch=2, weights_path="/step_2"),
        "transfer": pb.ServingState(epoch=3, weights_epoch=3),
    }
    for origin, serving in origins.items():
        assert WorkerStatus("one:1", "ready", serving, "", "").weights_origin == origin
