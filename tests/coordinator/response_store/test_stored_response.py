"""The form of responses in a shared store."""

from dataclasses import replace

import pytest

from tests.coordinator.response_store.responses import RESPONSE
from tokenwire.coordinator.response_store.stored_response import StoredResponse, pack, unpack

STREAMED = replace(RESPONSE, background=True, chain=("resp_0",), events=b"event: a\n\n", first_event=3, context_bytes=7)


@pytest.mark.parametrize("stored", [RESPONSE, STREAMED, replace(RESPONSE, events=b"")])
def test_a_response_is_restored(stored: StoredResponse) -> None:
    """With all of its fields."""
    assert unpack(pack(stored)) == stored


@pytest.mark.parametrize("packed", [b"", b"\xff", b"{}\n", b"[1]\n", pack(STREAMED)[:-1], pack(STREAMED) + b"x"])
def test_other_bytes_are_no_response(packed: bytes) -> None:
    """Those of a later version, or cut ones."""
    assert unpack(packed) is None


def test_a_response_with_a_reply_can_be_continued() -> None:
    """Not one that runs, failed, or was cancelled."""
    states = ("queued", "in_progress", "completed", "incomplete", "failed", "cancelled")
    responses = [replace(RESPONSE, status=state) for state in states]

    assert [each.status for each in responses if each.can_be_continued] == ["completed", "incomplete"]
    assert [each.status for each in responses if not each.has_ended] == ["queued", "in_progress"]
