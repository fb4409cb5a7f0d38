"""The Response of a request, in each of its states."""

from tests.coordinator.api.replies import call_of
from tests.coordinator.api.responses.requests import TOOL
from tests.coordinator.api.responses.streams import response_events
from tokenwire.coordinator.types import Finish


def test_a_truncated_reply_is_incomplete() -> None:
    """So are its last item and the response, with the reason."""
    last = response_events(call_of(), ["a"], Finish("length"))[-1]

    assert last.kind == "response.incomplete"
    assert last.data["response"]["incomplete_details"] == {"reason": "max_output_tokens"}
    assert last.data["response"]["output"][0]["status"] == "incomplete"


def test_an_aborted_reply_has_failed() -> None:
    """The response has the error and the output so far."""
    last = response_events(call_of(), ["a"], Finish("abort"))[-1]

    assert last.kind == "response.failed"
    assert last.data["response"]["error"]["code"] == "server_error"
    assert last.data["response"]["output"][0]["content"][0]["text"] == "a"


def test_the_response_echoes_the_request() -> None:
    """With defaults; `store` is always false."""
    response = response_events(
        call_of(), ["a"], instructions="Be brief.", metadata={"a": "b"}, store=True, tools=[TOOL]
    )[-1]

    shown = response.data["response"]
    assert (shown["instructions"], shown["metadata"], shown["store"]) == ("Be brief.", {"a": "b"}, False)
    assert (shown["temperature"], shown["tools"], shown["tool_choice"]) == (0.5, [TOOL], "auto")
