"""The status of workers as JSON."""

from tests.coordinator.fleet.test_status import status
from tokenwire.coordinator.api.admin.worker_status import worker_object
from tokenwire.protocol.model_revision import ModelRevision


def test_a_connected_worker_shows_what_it_announced() -> None:
    """With the reason why it gets no new requests, if there is one."""
    shown = worker_object(status(reason="its weights differ"))

    assert (shown["weight_version"], shown["weights_path"], shown["epoch"]) == ("v2", "/step_2", 7)
    assert (shown["weights_origin"], shown["revision"]) == ("directory", ModelRevision().digest)
    assert shown["loras"] == ["red"]
    assert (shown["routable"], shown["reason"]) == (False, "its weights differ")
    assert (shown["pause_state"], shown["reconcile_error"]) == ("running", None)


def test_what_a_lost_worker_announced_is_not_shown() -> None:
    """It may be stale."""
    shown = worker_object(status(session="connecting", reason="lost", paused=True))

    assert (shown["weight_version"], shown["weights_path"], shown["epoch"], shown["loras"]) == (None, None, None, [])
    assert (shown["weights_origin"], shown["revision"]) == (None, None)
    assert (shown["pause_state"], shown["routable"]) == ("unknown", False)
