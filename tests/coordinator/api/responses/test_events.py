"""The events of a streamed response, the last of which has the response."""

import json
from itertools import islice

from tests.coordinator.api.replies import STOP, bytes_of, call_of, tool_call
from tests.coordinator.api.responses.requests import PATCH, SHELL, namespace, responses_chat, user
from tests.coordinator.api.responses.streams import response_events
from tokenwire.coordinator.api.fields.logprobs import LogprobStyle
from tokenwire.coordinator.api.message_parts import PartStream
from tokenwire.coordinator.api.responses.events import ResponseEvents
from tokenwire.coordinator.api.responses.request import ResponsesRequest
from tokenwire.coordinator.api.responses.response import ResponseObject
from tokenwire.coordinator.parsing.message import MessageDelta
from tokenwire.coordinator.text.logprobs import ScoredPosition, ScoredToken
from tokenwire.coordinator.types import Prefill, Usage


def test_usage_has_what_was_read_from_the_cache_and_written_to_it() -> None:
    """As vLLM's; nothing where the engine reports nothing."""
    known, unknown = response_events(call_of(), ["a"], prefill=Prefill(1, 1)), response_events(call_of(), ["a"])

    details = [events[-1].data["response"]["usage"]["input_tokens_details"] for events in (known, unknown)]
    assert details == [
        {"cached_tokens": 1, "cache_write_tokens": 1},
        {"cached_tokens": 0, "cache_write_tokens": 0},
    ]


def test_events_come_in_order_and_are_numbered() -> None:
    """Each item is added, filled and done; the last event has the full response with the stream's items."""
    deltas = [MessageDelta(reasoning="hm"), MessageDelta(content="a\n“b”"), tool_call(0, "{}", "f")]

    events = response_events(call_of(deltas), ["", "", ""])

    assert [event.kind.removeprefix("response.") for event in events] == [
        "created",
        "in_progress",
        *("output_item.added", "content_part.added", "reasoning_text.delta"),
        *("reasoning_text.done", "content_part.done", "output_item.done"),
        *("output_item.added", "content_part.added", "output_text.delta"),
        *("output_text.done", "content_part.done", "output_item.done"),
        *("output_item.added", "function_call_arguments.delta", "function_call_arguments.done", "output_item.done"),
        "completed",
    ]
    assert [event.data["sequence_number"] for event in events] == list(range(len(events)))
    done = [event.data["item"] for event in events if event.kind == "response.output_item.done"]
    response = events[-1].data["response"]
    assert response["output"] == done
    assert [item["type"] for item in done] == ["reasoning", "message", "function_call"]
    assert done[1]["content"][0]["text"] == "a\n“b”"
    assert response["usage"]["output_tokens_details"]["reasoning_tokens"] == 1


def test_calls_of_namespaced_functions_have_their_own_name() -> None:
    """All items of calls have the namespace and the function as separate fields."""
    events = response_events(call_of([tool_call(0, "{}", "n__f")]), [""], tools=[namespace("n")])

    items = [event.data["item"] for event in events if "output_item" in event.kind]
    assert [(item["namespace"], item["name"]) for item in items] == [("n", "f")] * 2
    assert events[-1].data["response"]["output"] == items[1:]
    assert [event.data["name"] for event in events if event.kind.endswith("arguments.done")] == ["f"]


def test_deltas_have_their_item() -> None:
    """Its id and its position."""
    events = response_events(call_of(), ["a", "b"])

    added = next(event.data for event in events if event.kind == "response.output_item.added")
    deltas = [event.data for event in events if event.kind == "response.output_text.delta"]
    assert [delta["delta"] for delta in deltas] == ["a", "b"]
    assert {delta["item_id"] for delta in deltas} == {added["item"]["id"]}
    assert [(delta["output_index"], delta["content_index"], delta["logprobs"]) for delta in deltas] == [(0, 0, [])] * 2


def test_calls_of_other_tools_become_function_calls_again() -> None:
    """Items and their outputs become the prompt's messages that the model generated."""
    deltas = [
        tool_call(0, '{"input": "a\\nb"}', "patch"),
        tool_call(1, '{"command": ["ls"], "env": {}}', "local_shell"),
    ]
    items = response_events(call_of(deltas), ["", ""], tools=[PATCH, SHELL])[-1].data["response"]["output"]
    outputs = [
        {"type": "custom_tool_call_output", "call_id": "call_0", "output": "one"},
        {"type": "local_shell_call_output", "id": "call_1", "output": "two"},
    ]

    messages = responses_chat([user("Hi"), *items, *outputs]).messages

    assert [(call["id"], call["function"]) for call in messages[1]["tool_calls"]] == [
        ("call_0", {"name": "patch", "arguments": '{"input": "a\\nb"}'}),
        ("call_1", {"name": "local_shell", "arguments": '{"command": ["ls"]}'}),
    ]
    assert messages[2:] == [
        {"role": "tool", "content": "one", "tool_call_id": "call_0"},
        {"role": "tool", "content": "two", "tool_call_id": "call_1"},
    ]


def test_input_known_only_at_its_end_is_a_delta_too() -> None:
    """Deltas join to the input, even if the model does not write JSON."""
    events = response_events(call_of([tool_call(0, "print(1)", "patch")]), [""], tools=[PATCH])

    assert [event.data["delta"] for event in events if event.kind.endswith("input.delta")] == ["print(1)"]
    assert events[-1].data["response"]["output"][0]["input"] == "print(1)"


def test_an_input_is_streamed() -> None:
    """Without the JSON around it, and with its own events."""
    deltas = [tool_call(0, '{"input": "a\\', "patch"), tool_call(0, 'nb"'), tool_call(0, "}")]
    events = response_events(call_of(deltas), ["", "", ""], tools=[PATCH])

    assert [event.kind.removeprefix("response.") for event in events[2:-1]] == [
        *("output_item.added", "custom_tool_call_input.delta", "custom_tool_call_input.delta"),
        *("custom_tool_call_input.done", "output_item.done"),
    ]
    assert [event.data["delta"] for event in events if event.kind.endswith("input.delta")] == ["a", "\nb"]
    assert [event.data["sequence_number"] for event in events] == list(range(len(events)))


def test_the_end_has_all_log_probabilities_in_pieces() -> None:
    """In the events of the text, the part, the item and the response, each as the deltas have them."""
    call, ended = call_of(logprobs=True, top_logprobs=1), list[tuple[str, bytes]]()
    response = ResponseObject(ResponsesRequest(input="Hi"), call)
    renderer = ResponseEvents(response, LogprobStyle(1), lambda status, body: ended.append((status, body)))
    stream = PartStream(call, renderer)
    scored = [ScoredPosition.of(ScoredToken(1, "a", -1.0, 1))] * 3_000

    data = b"".join(stream.opening()) + bytes_of(stream.delta(0, "a", [1], None, scored[:1]))
    data += bytes_of(stream.delta(0, "b", [1], STOP, scored[1:]))
    pieces = stream.closing(Usage(2, 3_000))
    assert not isinstance(pieces, bytes)
    parts = list(islice(pieces, 1))
    assert not ended  # nothing of the response is made before it is sent
    while not ended:
        parts.append(next(pieces))
    assert not parts[-1].endswith(b"\n\n")  # no client can have it before it is stored
    parts += pieces

    texts = (data + b"".join(parts)).decode().split("\n\n")[:-1]
    events = [json.loads(text.partition("data: ")[2]) for text in texts]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    text, part, item, whole = events[-4:]
    assert [event["type"].removeprefix("response.") for event in events[-4:]] == [
        *("output_text.done", "content_part.done", "output_item.done", "completed")
    ]
    assert (text["text"], part["part"]["text"]) == ("ab", "ab")
    assert item["item"] == whole["response"]["output"][0]
    deltas = [entry for event in events if event["type"].endswith("text.delta") for entry in event["logprobs"]]
    assert len(deltas) == 3_000
    assert text["logprobs"] == part["part"]["logprobs"] == item["item"]["content"][0]["logprobs"] == deltas
    assert max(map(len, parts)) < 250_000
    assert [(status, json.loads(body)) for status, body in ended] == [("completed", whole["response"])]
