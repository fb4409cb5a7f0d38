"""Tools and their choice, where the server has no parser of calls: what is accepted, and what is rejected."""

from tests.conformance.parity.corpus.prompts_used import SUM
from tests.conformance.parity.request import chat, rejected

WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather in a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
NAMED = {"type": "function", "function": {"name": "weather"}}
_SHOWN = "{{ tools | tojson }} {{ messages[-1].content }}"
_CALL = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Rome"}'}}


def _called(**changes: object) -> list[dict[str, object]]:
    return [
        {"role": "user", "content": "Rome?"},
        {"role": "assistant", "content": "Let me see.", "tool_calls": [{**_CALL, **changes}]},
        {"role": "tool", "tool_call_id": "call_1", "content": "Sunny."},
    ]


REQUESTS = {
    "tools, none to be chosen": chat(SUM, tools=[WEATHER], tool_choice="none", max_tokens=4),
    "tools in the template": chat(SUM, tools=[WEATHER], tool_choice="none", chat_template=_SHOWN, max_tokens=4),
    "tools, choice of null": chat(SUM, tools=[WEATHER, WEATHER], tool_choice="none", parallel_tool_calls=False),
    "no tools, none to be chosen": chat(SUM, tool_choice="none", max_tokens=4),
    "parallel calls of no tools": chat(SUM, parallel_tool_calls=False, max_tokens=4),
    "parallel calls of null": chat(SUM, parallel_tool_calls=True, max_tokens=4),
    "a tool that was called": chat(_called(), max_tokens=6),
    "a tool that was called, in the template": chat(
        _called(), chat_template="{{ messages[1].tool_calls | tojson }}", max_tokens=6
    ),
    "a tool that was called, no content": chat(
        [{"role": "user", "content": "x"}, {"role": "assistant", "content": None, "tool_calls": [_CALL]}], max_tokens=6
    ),
    "a call with arguments that are no JSON": chat(
        _called(function={"name": "weather", "arguments": "{"}), max_tokens=4
    ),
    "a call with empty arguments": chat(_called(function={"name": "weather", "arguments": ""}), max_tokens=4),
    "a call without a function": rejected(chat(_called(function=None))),
    "a call of a wrong kind": rejected(chat(_called(type="x"))),
    "no calls": chat([{"role": "user", "content": SUM, "tool_calls": []}], max_tokens=4),
    "tools, chosen by themselves": rejected(chat(SUM, tools=[WEATHER])),
    "tools, auto": rejected(chat(SUM, tools=[WEATHER], tool_choice="auto")),
    "tools, required": rejected(chat(SUM, tools=[WEATHER], tool_choice="required")),
    "tools, named": rejected(chat(SUM, tools=[WEATHER], tool_choice=NAMED)),
    "tools, another one named": rejected(
        chat(SUM, tools=[WEATHER], tool_choice={"type": "function", "function": {"name": "news"}})
    ),
    "tools, named without a function": rejected(chat(SUM, tools=[WEATHER], tool_choice={"type": "function"})),
    "tools, named without a name": rejected(
        chat(SUM, tools=[WEATHER], tool_choice={"type": "function", "function": {}})
    ),
    "tools, an empty name": rejected(
        chat(SUM, tools=[WEATHER], tool_choice={"type": "function", "function": {"name": ""}})
    ),
    "tools, chosen how": rejected(chat(SUM, tools=[WEATHER], tool_choice="maybe")),
    "tools empty": rejected(chat(SUM, tools=[])),
    "tools of a wrong type": rejected(chat(SUM, tools="weather", tool_choice="none")),
    "a tool without a name": rejected(chat(SUM, tools=[{"type": "function", "function": {}}], tool_choice="none")),
    "a tool without a function": rejected(chat(SUM, tools=[{"type": "function"}], tool_choice="none")),
    "a choice without tools": rejected(chat(SUM, tool_choice="auto")),
    "a required choice without tools": rejected(chat(SUM, tool_choice="required")),
    "constraints and a named tool": rejected(
        chat(SUM, tools=[WEATHER], tool_choice=NAMED, structured_outputs={"choice": ["a"]})
    ),
    "reasoning not included": chat(SUM, include_reasoning=False, max_tokens=4),
    "reasoning included or not": rejected(chat(SUM, include_reasoning="maybe")),
}
