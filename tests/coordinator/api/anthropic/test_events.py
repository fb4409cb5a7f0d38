"""The events of a streamed message."""

from tests.coordinator.api.replies import STOP, UNCACHED, ServerSentEvent, call_of, events_of, streamed, tool_call
from tokenwire.coordinator.api.anthropic.events import MessageEvents
from tokenwire.coordinator.api.message_parts import PartStream
from tokenwire.coordinator.api.openai.chat import ChatCall
from tokenwire.coordinator.output.settings import ApiSettings
from tokenwire.coordinator.parsing.message import MessageDelta
from tokenwire.coordinator.types import Finish, Prefill
from tokenwire.errors import WorkerLost


def message_events(
    call: ChatCall, steps: list[str], finish: Finish = STOP, prefill: Prefill = UNCACHED
) -> list[ServerSentEvent]:
    """Return the events of a call."""
    return streamed(call, MessageEvents(call), steps, finish, prefill)


def test_events_come_in_order() -> None:
    """Each block is started, filled and stopped; thinking is signed; the stop reason and usage come last."""
    deltas = [MessageDelta(reasoning="hm"), MessageDelta(content="“a”"), tool_call(0, '{"x": 1}', "f")]

    events = message_events(call_of(deltas), ["", "", ""])

    assert [event.kind for event in events] == [
        *("message_start", "ping"),
        *("content_block_start", "content_block_delta", "content_block_delta", "content_block_stop"),
        *("content_block_start", "content_block_delta", "content_block_stop"),
        *("content_block_start", "content_block_delta", "content_block_stop"),
        *("message_delta", "message_stop"),
    ]
    deltas_shown = [event.data["delta"] for event in events if event.kind == "content_block_delta"]
    assert deltas_shown[1].pop("signature")
    assert deltas_shown == [
        {"type": "thinking_delta", "thinking": "hm"},
        {"type": "signature_delta"},
        {"type": "text_delta", "text": "“a”"},
        {"type": "input_json_delta", "partial_json": '{"x": 1}'},
    ]
    starts = [event.data["content_block"] for event in events if event.kind == "content_block_start"]
    assert [block["type"] for block in starts] == ["thinking", "text", "tool_use"]
    assert starts[2] == {"type": "tool_use", "id": "call_0", "name": "f", "input": {}}
    assert [event.data["index"] for event in events if event.kind == "content_block_stop"] == [0, 1, 2]
    assert events[-2].data["delta"] == {"stop_reason": "tool_use", "stop_sequence": None}
    assert events[-2].data["usage"] == {
        "input_tokens": 2,
        "output_tokens": 3,
        "output_tokens_details": {"thinking_tokens": 1},
    }


def test_cached_tokens_are_not_input_tokens() -> None:
    """If the server reports cached tokens, a prompt's tokens are split as by Anthropic."""
    events = message_events(call_of(api=ApiSettings(prompt_tokens_details=True)), ["a"], prefill=Prefill(1))

    started, ended = events[0].data["message"]["usage"], events[-2].data["usage"]
    assert started == {"input_tokens": 1, "cache_read_input_tokens": 1, "output_tokens": 0}
    assert ended == {"input_tokens": 1, "cache_read_input_tokens": 1, "output_tokens": 1}


def test_tokens_written_to_the_cache_are_not_input_tokens() -> None:
    """They are counted apart, as in vLLM: all three counts together are the prompt's."""
    events = message_events(call_of(api=ApiSettings(prompt_tokens_details=True)), ["a"], prefill=Prefill(0, 2))

    expected = {"input_tokens": 0, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 2}
    assert events[0].data["message"]["usage"] == {**expected, "output_tokens": 0}
    assert events[-2].data["usage"] == {**expected, "output_tokens": 1}


def test_errors_mid_stream_are_events() -> None:
    """In Anthropic's format, as the last event."""
    call = call_of()
    stream = PartStream(call, MessageEvents(call))

    (event,) = events_of(stream.error(WorkerLost("gone")) + stream.ending)

    assert event.data == {"type": "error", "error": {"type": "overloaded_error", "message": "gone"}}
