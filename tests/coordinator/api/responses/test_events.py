"""The events of a streamed response, and the response in the last of them."""

from typing import Any

from tests.coordinator.api.replies import STOP, Event, call_of, streamed, tool_call
from tests.coordinator.api.responses.requests import PATCH, SHELL, TOOL, chat, namespace, user
from tokenwire.coordinator.api.openai.chat import ChatCall
from tokenwire.coordinator.api.responses.events import ResponseEvents
from tokenwire.coordinator.api.responses.request import ResponsesRequest
from tokenwire.coordinator.api.responses.response import ResponseObject
from tokenwire.coordinator.parsing.message import MessageDelta
from tokenwire.coordinator.types import Finish


def stream(call: ChatCall, steps: list[str], finish: Finish = STOP, **body: Any) -> list[Event]:
    """Return the events of a call."""
    response = ResponseObject(ResponsesRequest(input="Hi", **body), call)
    return streamed(call, ResponseEvents(response, None), steps, finish)


def test_events_come_in_order_and_are_numbered() -> None:
    """Each item is added, filled and done; the whole response comes last, with what the stream had."""
    deltas = [MessageDelta(reasoning="hm"), MessageDelta(content="a\n“b”"), tool_call(0, "{}", "f")]

    events = stream(call_of(deltas), ["", "", ""])

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


def test_calls_of_a_namespaces_function_have_its_own_name() -> None:
    """Wherever a call is shown, it names the namespace and the function apart."""
    events = stream(call_of([tool_call(0, "{}", "n__f")]), [""], tools=[namespace("n")])

    items = [event.data["item"] for event in events if "output_item" in event.kind]
    assert [(item["namespace"], item["name"]) for item in items] == [("n", "f")] * 2
    assert events[-1].data["response"]["output"] == items[1:]
    assert [event.data["name"] for event in events if event.kind.endswith("arguments.done")] == ["f"]


def test_deltas_name_their_item() -> None:
    """A delta says which item it belongs to, and where that is."""
    events = stream(call_of(), ["a", "b"])

    added = next(event.data for event in events if event.kind == "response.output_item.added")
    deltas = [event.data for event in events if event.kind == "response.output_text.delta"]
    assert [delta["delta"] for delta in deltas] == ["a", "b"]
    assert {delta["item_id"] for delta in deltas} == {added["item"]["id"]}
    assert [(delta["output_index"], delta["content_index"], delta["logprobs"]) for delta in deltas] == [(0, 0, [])] * 2


def test_a_cut_reply_is_incomplete() -> None:
    """The last item and the response say so, and why."""
    last = stream(call_of(), ["a"], Finish("length"))[-1]

    assert last.kind == "response.incomplete"
    assert last.data["response"]["incomplete_details"] == {"reason": "max_output_tokens"}
    assert last.data["response"]["output"][0]["status"] == "incomplete"


def test_a_reply_that_was_broken_off_has_failed() -> None:
    """The response carries the error and what had come."""
    last = stream(call_of(), ["a"], Finish("abort"))[-1]

    assert last.kind == "response.failed"
    assert last.data["response"]["error"]["code"] == "server_error"
    assert last.data["response"]["output"][0]["content"][0]["text"] == "a"


def test_the_response_repeats_the_request() -> None:
    """Clients find what they asked for, defaults filled in; nothing is stored, whatever they asked."""
    response = stream(call_of(), ["a"], instructions="Be brief.", metadata={"a": "b"}, store=True, tools=[TOOL])[-1]

    shown = response.data["response"]
    assert (shown["instructions"], shown["metadata"], shown["store"]) == ("Be brief.", {"a": "b"}, False)
    assert (shown["temperature"], shown["tools"], shown["tool_choice"]) == (0.5, [TOOL], "auto")


def test_calls_of_other_tools_come_back_as_calls_of_functions() -> None:
    """Items of the reply and their outputs are the messages of the prompt that the model knows."""
    deltas = [
        tool_call(0, '{"input": "a\\nb"}', "patch"),
        tool_call(1, '{"command": ["ls"], "env": {}}', "local_shell"),
    ]
    items = stream(call_of(deltas), ["", ""], tools=[PATCH, SHELL])[-1].data["response"]["output"]
    outputs = [
        {"type": "custom_tool_call_output", "call_id": "call_0", "output": "one"},
        {"type": "local_shell_call_output", "id": "call_1", "output": "two"},
    ]

    messages = chat([user("Hi"), *items, *outputs]).messages

    assert [(call["id"], call["function"]) for call in messages[1]["tool_calls"]] == [
        ("call_0", {"name": "patch", "arguments": '{"input": "a\\nb"}'}),
        ("call_1", {"name": "local_shell", "arguments": '{"command": ["ls"]}'}),
    ]
    assert messages[2:] == [
        {"role": "tool", "content": "one", "tool_call_id": "call_0"},
        {"role": "tool", "content": "two", "tool_call_id": "call_1"},
    ]


def test_input_that_shows_only_at_its_end_is_a_delta_too() -> None:
    """What deltas add up to is the input, also where a model writes no JSON."""
    events = stream(call_of([tool_call(0, "print(1)", "patch")]), [""], tools=[PATCH])

    assert [event.data["delta"] for event in events if event.kind.endswith("input.delta")] == ["print(1)"]
    assert events[-1].data["response"]["output"][0]["input"] == "print(1)"


def test_an_input_is_streamed_as_it_comes() -> None:
    """Without the JSON around it, and with the events of its own."""
    deltas = [tool_call(0, '{"input": "a\\', "patch"), tool_call(0, 'nb"'), tool_call(0, "}")]
    events = stream(call_of(deltas), ["", "", ""], tools=[PATCH])

    assert [event.kind.removeprefix("response.") for event in events[2:-1]] == [
        *("output_item.added", "custom_tool_call_input.delta", "custom_tool_call_input.delta"),
        *("custom_tool_call_input.done", "output_item.done"),
    ]
    assert [event.data["delta"] for event in events if event.kind.endswith("input.delta")] == ["a", "\nb"]
    assert [event.data["sequence_number"] for event in events] == list(range(len(events)))
