"""Model outputs with tool calls and reasoning in the formats of parsers, and their requests."""

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tokenwire.coordinator.parsing.settings import ParserSettings

Calls = list[tuple[str, dict[str, Any]]]

_WORDS = ["the", "quick", "brown", "fox's", "jumps", "over", "12", "lazy", "dogs;", "while", "seven", "<b>wizards</b>"]
_WORDS += ["brew", "{tea}", "in", "Zürich", "東京", "👩\u200d🚀", "cafés"]

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "write",
            "description": "Write a file.",
            "parameters": {
                "type": "object",
                "properties": {"path": {"type": "string"}, "text": {"type": "string"}, "mode": {"type": "integer"}},
                "required": ["path", "text"],
            },
        },
    },
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string"},
                    "days": {"type": "integer"},
                    "tags": {"type": "array", "items": {"type": "string"}},
                },
            },
        },
    },
]


def prose(words: int, seed: int = 0) -> str:
    """Return random words, with characters of several tokens and characters that formats use."""
    pick = random.Random(seed)
    return " ".join(pick.choice(_WORDS) for _ in range(words))


def two_calls(words: int) -> Calls:
    """Return a call with long text and code, and a short one."""
    text = prose(words) + '\nif x:\n\tprint("a \\"b\\"", \'c\')\n'
    return [
        ("write", {"path": "/tmp/a.txt", "text": text, "mode": 420}),
        ("get_weather", {"city": "Zürich", "days": 2, "tags": ["a", "b"]}),
    ]


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def hermes(calls: Calls) -> str:
    """JSON between tags."""
    return "Sure.\n" + "\n".join(
        f"<tool_call>\n{_json({'name': name, 'arguments': arguments})}\n</tool_call>" for name, arguments in calls
    )


def qwen3_coder(calls: Calls) -> str:
    """A tag for each parameter."""
    texts = []
    for name, arguments in calls:
        parameters = "".join(
            f"<parameter={key}>\n{value if isinstance(value, str) else _json(value)}\n</parameter>\n"
            for key, value in arguments.items()
        )
        texts.append(f"<tool_call>\n<function={name}>\n{parameters}</function>\n</tool_call>")
    return "Sure.\n" + "\n".join(texts)


def llama3_json(calls: Calls) -> str:
    """Bare JSON."""
    return "; ".join(_json({"name": name, "parameters": arguments}) for name, arguments in calls)


def mistral(calls: Calls) -> str:
    """A special token and a JSON list."""
    return "[TOOL_CALLS]" + _json([{"name": name, "arguments": arguments} for name, arguments in calls])


def deepseek_v3(calls: Calls) -> str:
    """JSON in a code block between special tokens."""
    texts = [
        f"<｜tool▁call▁begin｜>function<｜tool▁sep｜>{name}\n```json\n{_json(arguments)}\n```<｜tool▁call▁end｜>"
        for name, arguments in calls
    ]
    return "Sure.<｜tool▁calls▁begin｜>" + "\n".join(texts) + "<｜tool▁calls▁end｜>"


def pythonic(calls: Calls) -> str:
    """Python."""
    texts = [
        f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})" for name, arguments in calls
    ]
    return f"[{', '.join(texts)}]"


def gpt_oss(calls: Calls) -> str:
    """Harmony: a channel for each part, one call a turn."""
    name, arguments = calls[0]
    return (
        f"<|channel|>analysis<|message|>{prose(20, 1)}<|end|><|start|>assistant<|channel|>commentary "
        f"to=functions.{name} <|constrain|>json<|message|>{_json(arguments)}<|call|>"
    )


def gpt_oss_answer(words: int) -> str:
    """Harmony: reasoning and an answer."""
    return (
        f"<|channel|>analysis<|message|>{prose(words)}<|end|><|start|>assistant<|channel|>final<|message|>"
        f"{prose(20, 2)}<|return|>"
    )


def thinking(answer: str, words: int = 30) -> str:
    """Reasoning between tags."""
    return f"<think>\n{prose(words, 3)}\n</think>\n\n{answer}"


def json_calls(calls: Calls) -> str:
    """JSON as enforced by the grammar of a required tool call."""
    return _json([{"name": name, "parameters": arguments} for name, arguments in calls])


@dataclass(frozen=True)
class OutputCase:
    """A model's output and its request."""

    settings: ParserSettings
    tokenizer: str
    output: str
    body: Mapping[str, Any]
    reason: str = "stop"


def _tool_case(name: str) -> ParserSettings:
    return ParserSettings(tool_call_parser=name, enable_auto_tool_choice=True)


def _both(tools: str, reasoning: str) -> ParserSettings:
    return ParserSettings(tool_call_parser=tools, reasoning_parser=reasoning, enable_auto_tool_choice=True)


def chat_body(tools: bool = True, **fields: Any) -> dict[str, Any]:
    """Return a request's body."""
    body: dict[str, Any] = {"messages": [{"role": "user", "content": "Write and tell me the weather."}]}
    return body | ({"tools": TOOLS} if tools else {}) | fields


HISTORY: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "The weather?"},
    {
        "role": "assistant",
        "reasoning_content": "Look it up.",
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Zürich"}'}}
        ],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "Sunny."},
]


def output_cases(words: int) -> dict[str, OutputCase]:
    """Return cases whose long parts have this number of words."""
    calls = two_calls(words)
    named = {"type": "function", "function": {"name": "write"}}
    called, gptoss = thinking(hermes(calls)), _both("openai", "openai_gptoss")
    only_qwen3, only_r1 = ParserSettings(reasoning_parser="qwen3"), ParserSettings(reasoning_parser="deepseek_r1")
    hermes_qwen3 = _both("hermes", "qwen3")
    return {
        "hermes": OutputCase(_tool_case("hermes"), "qwen3", hermes(calls), chat_body()),
        "hermes-text-markers": OutputCase(_tool_case("hermes"), "llama3_1", hermes(calls), chat_body()),
        "hermes-no-call": OutputCase(_tool_case("hermes"), "qwen3", prose(words), chat_body()),
        "hermes-one-call": OutputCase(
            _tool_case("hermes"), "qwen3", hermes(calls), chat_body(parallel_tool_calls=False)
        ),
        "hermes-cut": OutputCase(_tool_case("hermes"), "qwen3", hermes(calls)[:-120], chat_body(), "length"),
        "hermes-required": OutputCase(_tool_case("hermes"), "qwen3", hermes(calls), chat_body(tool_choice="required")),
        "hermes-named": OutputCase(_tool_case("hermes"), "qwen3", hermes(calls[:1]), chat_body(tool_choice=named)),
        "qwen3_coder": OutputCase(_tool_case("qwen3_coder"), "qwen3", qwen3_coder(calls), chat_body()),
        "qwen3_coder-none": OutputCase(
            _tool_case("qwen3_coder"), "qwen3", qwen3_coder(calls), chat_body(tool_choice="none")
        ),
        "qwen3_coder-cut": OutputCase(
            _tool_case("qwen3_coder"), "qwen3", qwen3_coder(calls)[:-90], chat_body(), "length"
        ),
        "llama3_json": OutputCase(_tool_case("llama3_json"), "llama3_2", llama3_json(calls), chat_body()),
        "llama3_json-no-call": OutputCase(_tool_case("llama3_json"), "llama3_2", prose(words), chat_body()),
        "mistral": OutputCase(_tool_case("mistral"), "mistral_nemo", mistral(calls), chat_body()),
        "deepseek_v3": OutputCase(_tool_case("deepseek_v3"), "deepseek_v3", deepseek_v3(calls), chat_body()),
        "pythonic": OutputCase(_tool_case("pythonic"), "llama3_1", pythonic(calls), chat_body()),
        "pythonic-required": OutputCase(
            _tool_case("pythonic"), "llama3_1", json_calls(calls), chat_body(tool_choice="required")
        ),
        "pythonic-named": OutputCase(
            _tool_case("pythonic"), "llama3_1", _json(calls[0][1]), chat_body(tool_choice=named)
        ),
        "qwen3": OutputCase(only_qwen3, "qwen3", thinking(prose(words)), chat_body(tools=False)),
        "qwen3-hidden": OutputCase(
            only_qwen3, "qwen3", thinking(prose(words)), chat_body(tools=False, include_reasoning=False)
        ),
        "qwen3-cut": OutputCase(only_qwen3, "qwen3", thinking("")[:-40], chat_body(tools=False), "length"),
        "deepseek_r1": OutputCase(only_r1, "qwen3", thinking(prose(words)), chat_body(tools=False)),
        "hermes-qwen3": OutputCase(hermes_qwen3, "qwen3", called, chat_body()),
        "hermes-qwen3-hidden": OutputCase(hermes_qwen3, "qwen3", called, chat_body(include_reasoning=False)),
        "hermes-deepseek_r1": OutputCase(_both("hermes", "deepseek_r1"), "qwen3", called, chat_body()),
        "qwen3_coder-qwen3": OutputCase(
            _both("qwen3_coder", "qwen3"), "qwen3", thinking(qwen3_coder(calls)), chat_body()
        ),
        "gpt-oss": OutputCase(gptoss, "gptoss", gpt_oss(calls), chat_body(reasoning_effort="low")),
        "gpt-oss-history": OutputCase(
            gptoss, "gptoss", gpt_oss(calls), chat_body(messages=HISTORY, tool_choice="auto")
        ),
        "hermes-qwen3-history": OutputCase(hermes_qwen3, "qwen3", called, chat_body(messages=HISTORY)),
        "gpt-oss-answer": OutputCase(gptoss, "gptoss", gpt_oss_answer(words), chat_body(tools=False)),
        "gpt-oss-hidden": OutputCase(
            gptoss, "gptoss", gpt_oss_answer(words), chat_body(tools=False, include_reasoning=False)
        ),
    }
