"""Tool calls and reasoning found in replies: for servers with parsers, with output that a grammar makes certain."""

from typing import Any

from tests.conformance.parity.corpus.prompts_used import SUM
from tests.conformance.parity.corpus.tools import NAMED, WEATHER
from tests.conformance.parity.request import Request, as_is, chat, rejected

_NEWS = {"type": "function", "function": {"name": "news", "parameters": {"type": "object", "properties": {}}}}
CALL = '<tool_call>\\n\\{"name": "weather", "arguments": \\{"city": "(Paris|Rome)"\\}\\}\\n</tool_call>'
_OTHER = '<tool_call>\\n\\{"name": "news", "arguments": \\{\\}\\}\\n</tool_call>'
_THOUGHT = "Here is my thought process: (two|three) Here is my response: "
THINKING = "Here is my thought process: two and two. Here is my response: four."
CALLING = THINKING.replace("four.", '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call>')


def _forced(regex: str, **options: Any) -> Request:
    """Request a reply that matches a grammar, whatever the model would generate."""
    return chat(
        SUM, **{"structured_outputs": {"regex": regex}, "max_tokens": 90, "include_reasoning": False, **options}
    )


def _repeated(text: str, **options: Any) -> Request:
    """Request a reply that continues like its prompt: a grammar does not constrain reasoning."""
    return chat(SUM, **{"chat_template": repeated(text), "stop": ["\n\n"], **options})


def repeated(text: str) -> str:
    """Return a template after which the model repeats this text."""
    return f"Q: So?\nA: {text}\n\n" * 4 + "Q: So?\nA:"


_AUTO: dict[str, Any] = {"tools": [WEATHER, _NEWS], "tool_choice": "auto"}

REQUESTS = {
    "no call": chat(SUM, tools=[WEATHER]),
    "no tools": chat(SUM),
    "a call": _forced(CALL, **_AUTO),
    "a call, choice left out": _forced(CALL, tools=[WEATHER]),
    "a call after text": _forced("Let me see\\. " + CALL, **_AUTO),
    "a call before text": _forced(CALL + " Done\\.", **_AUTO),
    "two calls": _forced(f"{CALL}\n{_OTHER}", max_tokens=140, **_AUTO),
    "two calls, one wanted": _forced(f"{CALL}\n{_OTHER}", max_tokens=140, parallel_tool_calls=False, **_AUTO),
    "a call that is cut off": _forced(CALL, **{**_AUTO, "max_tokens": 14}),
    "a call that is cut off early": _forced(CALL, **{**_AUTO, "max_tokens": 4}),
    "a call that is none": _forced("<tool_call>\\nnothing\\n</tool_call>", **_AUTO),
    "a call of a tool that is not there": _forced(_OTHER, tools=[WEATHER]),
    "a call without tools": _forced(CALL),
    "a call, none to be chosen": _forced(CALL, tools=[WEATHER], tool_choice="none"),
    "a call, two choices": _forced(CALL, n=2, temperature=1, seed=3, **_AUTO),
    "a call with logprobs": _forced(CALL, logprobs=True, top_logprobs=1, include_reasoning=True, **_AUTO),
    "a call with a stop string": _forced(CALL, stop=["Rome", "Paris"], **_AUTO),
    "a call with special tokens": _forced(CALL, skip_special_tokens=False, **_AUTO),
    "a required call": chat(SUM, tools=[WEATHER], tool_choice="required", max_tokens=40),
    "a required call, cut off": chat(SUM, tools=[WEATHER], tool_choice="required", max_tokens=5),
    "a named call": chat(SUM, tools=[WEATHER, _NEWS], tool_choice=NAMED, max_tokens=30),
    "a named call, cut off": chat(SUM, tools=[WEATHER], tool_choice=NAMED, max_tokens=3),
    "a named call, reasoning not included": chat(
        SUM, tools=[WEATHER], tool_choice=NAMED, include_reasoning=False, max_tokens=60
    ),
    "a required call, reasoning not included": chat(
        SUM, tools=[WEATHER], tool_choice="required", include_reasoning=False, max_tokens=60
    ),
    "a thought": _repeated(THINKING, max_tokens=30),
    "a thought, not included": _forced(_THOUGHT + "four"),
    "a thought, not included, ids and logprobs neither": _forced(_THOUGHT + "four", logprobs=True),
    "a thought that was not asked for": _repeated(THINKING, include_reasoning=False, max_tokens=30),
    "a thought and a call": _repeated(CALLING, max_tokens=60, **_AUTO),
    "a thought and a required call": _repeated(CALLING, max_tokens=60, tools=[WEATHER], tool_choice="required"),
    "a thought that is cut off": _repeated(THINKING, max_tokens=9),
    "a thought with logprobs": _repeated(THINKING, logprobs=True, top_logprobs=1, max_tokens=30),
    "a thought with a stop string": _repeated(THINKING, stop=["response"], max_tokens=30),
    "a thought, two choices": _repeated(THINKING, n=2, temperature=0.1, seed=2, max_tokens=30),
    "a thought, usage always": as_is(
        _repeated(
            THINKING,
            stream=True,
            stream_options={"include_usage": True, "continuous_usage_stats": True},
            max_tokens=30,
        )
    ),
    "a choice without tools": rejected(chat(SUM, tool_choice="auto")),
    "another tool named": rejected(
        chat(SUM, tools=[WEATHER], tool_choice={"type": "function", "function": {"name": "x"}})
    ),
    "a tool whose parameters are no schema": chat(
        SUM,
        tools=[{"type": "function", "function": {"name": "w", "parameters": {"type": "cheese"}}}],
        tool_choice="required",
    ),
    "a budget of thoughts": rejected(chat(SUM, thinking_token_budget=4)),
}
