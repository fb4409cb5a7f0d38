"""Writers of calls in the markup of models."""

import json
from collections.abc import Callable
from typing import Any

Calls = list[tuple[str, dict[str, Any]]]
Writes = Callable[[Calls], str]
Values = Callable[[Any], str]


def as_unicode_json(value: object) -> str:
    """Write JSON as models do."""
    return json.dumps(value, ensure_ascii=False)


def as_written(value: Any) -> str:
    """Write a string as it is, and other values as JSON."""
    return value if isinstance(value, str) else as_unicode_json(value)


def call_objects(calls: Calls, arguments: str = "arguments") -> list[str]:
    """Return calls as JSON objects."""
    return [as_unicode_json({"name": name, arguments: given}) for name, given in calls]


def each_call(begin: str, end: str, between: str = "\n", arguments: str = "arguments") -> Writes:
    """Write each call as JSON between two words."""
    return lambda calls: between.join(f"{begin}{each}{end}" for each in call_objects(calls, arguments))


def array_of_calls(begin: str, end: str = "", arguments: str = "arguments") -> Writes:
    """Write one JSON array."""
    return lambda calls: f"{begin}[{', '.join(call_objects(calls, arguments))}]{end}"


def elements(block: str, call: str, argument: str, values: Values = as_written, between: str = "\n") -> Writes:
    """Write an element for each call and argument."""

    # %n: a call's name, %i: its number, %a: its arguments; %k, %v, %t: an argument's name, value, type.
    def write(calls: Calls) -> str:
        texts = []
        for number, (name, given) in enumerate(calls):
            pairs = "".join(
                argument.replace("%k", key)
                .replace("%t", "true" if isinstance(value, str) else "false")
                .replace("%v", values(value))
                for key, value in given.items()
            )
            texts.append(call.replace("%n", name).replace("%i", str(number)).replace("%a", pairs))
        return block.replace("%c", between.join(texts))

    return write


def wrapped_calls(block: str, call: str, between: str = "") -> Writes:
    """Write arguments as JSON in the markup of a call."""
    return lambda calls: block.replace(
        "%c",
        between.join(
            call.replace("%n", name).replace("%i", str(number)).replace("%a", as_unicode_json(given))
            for number, (name, given) in enumerate(calls)
        ),
    )


def python_calls(block: str, between: str = ", ") -> Writes:
    """Write calls as Python does."""

    def write(calls: Calls) -> str:
        texts = (f"{name}({', '.join(f'{key}={each!r}' for key, each in given.items())})" for name, given in calls)
        return block.replace("%c", between.join(texts))

    return write


def gemma4_value(value: Any) -> str:
    """Write a value as Gemma 4 does."""
    if isinstance(value, str):
        return f'<|"|>{value}<|"|>'
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{gemma4_value(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(gemma4_value, value)) + "]"
    return as_unicode_json(value)


def of_gemma4(calls: Calls) -> str:
    """Write calls as Gemma 4 does."""
    return "".join(f"<|tool_call>call:{name}{gemma4_value(given)}<tool_call|>" for name, given in calls)


def of_functiongemma(calls: Calls) -> str:
    """Write calls as FunctionGemma does."""
    return "".join(
        f"<start_function_call>call:{name}{{"
        + ",".join(f"{key}:<escape>{as_written(value)}<escape>" for key, value in given.items())
        + "}<end_function_call>"
        for name, given in calls
    )


def of_cohere(calls: Calls) -> str:
    """Write calls as Command does."""
    listed = [
        {"tool_call_id": str(index), "tool_name": name, "parameters": given}
        for index, (name, given) in enumerate(calls)
    ]
    return f"<|START_ACTION|>{as_unicode_json(listed)}<|END_ACTION|>"


def of_kimi_k3(calls: Calls) -> str:
    """Write calls as Kimi K3 does."""
    kinds = {str: "string", int: "number", list: "array", dict: "object", bool: "boolean"}
    texts = []
    for number, (name, given) in enumerate(calls, 1):
        pairs = "".join(
            f'<|open|>argument key="{key}" type="{kinds[type(value)]}"<|sep|>{as_written(value)}'
            "<|close|>argument<|sep|>"
            for key, value in given.items()
        )
        texts.append(f'<|open|>call tool="{name}" index="{number}"<|sep|>{pairs}<|close|>call<|sep|>')
    return f"<|open|>tools<|sep|>{''.join(texts)}<|close|>tools<|sep|>"


def of_minimax_m3(calls: Calls) -> str:
    """Write calls as MiniMax M3 does."""
    mark = "]<]minimax[>["

    def value_of(value: Any) -> str:
        if isinstance(value, list):
            return "".join(f"{mark}<item>{value_of(each)}{mark}</item>" for each in value)
        if isinstance(value, dict):
            return "".join(f"{mark}<{key}>{value_of(each)}{mark}</{key}>" for key, each in value.items())
        return as_written(value)

    texts = [f'{mark}<invoke name="{name}">\n{value_of(given)}\n{mark}</invoke>' for name, given in calls]
    return "\n".join([f"{mark}<tool_call>", *texts, f"{mark}</tool_call>"])
