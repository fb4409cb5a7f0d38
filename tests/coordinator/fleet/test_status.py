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


def test_a_connected_worker_shows_what_it_announced() -> None:
    """With the reason why it gets no new requests, if there is one."""
    shown = status(reason="its weights differ").as_dict()

    assert (shown["weight_version"], shown["weights_path"], shown["epoch"]) == ("v2", "/step_2", 7)
    assert shown["loras"] == ["red"]
    assert (shown["routable"], shown["reason"]) == (False, "its weights differ")
    assert (shown["pause_state"], shown["reconcile_error"]) == ("running", None)


def test_what_a_lost_worker_announced_is_not_shown() -> None:
    """It may be stale."""
    shown = status(session="connecting", reason="lost", paused=True).as_dict()

    assert (shown["weight_version"], shown["weights_path"], shown["epoch"], shown["loras"]) == (None, None, None, [])
    assert (shown["pause_state"], shown["routable"]) == ("unknown", False)


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
