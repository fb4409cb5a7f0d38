"""Bodies with one awkward value each, made from the models of routes: a new field gets its own by itself."""

import inspect
import json
from collections.abc import Iterator
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from starlette.applications import Starlette

from tests.bodies import body_models

DEEP = 150
TEXTS = (r'""', r'" "', r'"\u0000\u001b[2J\n"', r'"\ud800"', r'"../..\u202e/x"', json.dumps("😀" * 2000))
FULL = ("-1", "0", "2", "4294967296", "9223372036854775807", "-9223372036854775809", "1" + "0" * 400, "1e400", "0.5")
REAL = ("NaN", "Infinity", "-Infinity", "1e400", "-1e-320", "0", "5e300", "-1")
LISTS = ("[]", "[null]", "[[]]", '[""]', r'["\ud800"]', "[-1]", "[4294967296]", "[{}]", "[" * DEEP + "]" * DEEP)
OBJECTS = (
    *("{}", '{"": ""}', r'{"\ud800": 1}', '{"a": null}', '{"type": ""}', '{"type": "object", "triggers": [""]}'),
    *(
        '{"$ref": "#"}',
        '{"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}',
        '{"a":' * DEEP + "1" + "}" * DEEP,
    ),
)
BY_TYPE: dict[Any, tuple[str, ...]] = {
    str: TEXTS,
    bytes: TEXTS,
    int: FULL,
    float: REAL,
    bool: ("true", "false"),
    NoneType: ("null",),
}
OF_ANY_TYPE = (*TEXTS, *FULL, *REAL, *LISTS, *OBJECTS, "true", "null")
OF_WRONG_TYPE = ("null", '"x"', "7", "[]", "{}", "[7]", "true")

TALK: Any = [{"role": "user", "content": "Hi"}]
EXAMPLES: dict[str, Any] = {
    **{"messages": TALK, "input": "Hi", "prompt": "Hi", "prompts": ["Hi"], "tokens": [65], "token_ids": [65]},
    **{"input_ids": [65], "sequences": [[65, 66]], "prompt_lengths": [1], "model": None},
}
"""What makes a request one that generates; a model of None is the served one."""
INSIDE = {
    "messages": (
        *('[{"role": "user", "content": %s}]', '[{"role": "user", "content": [%s]}]', '[{"role": %s, "content": "x"}]'),
        '[{"role": "user", "content": [{"type": "text", "text": %s}]}]',
        '[{"role": "user", "content": [{"type": %s}]}]',
        '[{"role": "assistant", "content": "x", "tool_calls": [%s]}, {"role": "user", "content": "x"}]',
        '[{"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "f", "input": %s}]}]',
        '[{"role": "assistant", "content": "x", "tool_calls": [{"id": "1", "type": "function", "function": '
        '{"name": "f", "arguments": %s}}]}, {"role": "tool", "tool_call_id": "1", "content": "x"}]',
    ),
    "input": ('[{"type": %s}]', '[{"role": "user", "content": %s}]', '[{"type": "reasoning", "summary": %s}]'),
    "tools": ('[{"type": "function", "name": "f", "function": {"name": "f", "parameters": %s}, "input_schema": {}}]',),
    "response_format": ('{"type": "json_schema", "json_schema": {"name": "x", "schema": %s}}',),
    "chat_template_kwargs": ('{"messages": %s}', '{"tokenize": %s}'),
}
"""Forms of fields whose models leave open what is inside of them."""


@dataclass(frozen=True)
class AwkwardRequest:
    """One request."""

    method: str
    path: str
    field: str
    body: str


def awkward_requests(app: Starlette, model_name: str) -> dict[str, list[AwkwardRequest]]:
    """Return the cases of every route with a body, by path."""
    found: dict[str, list[AwkwardRequest]] = {}
    other_names = {f"/v1{path}" for _, path in body_models(app)}
    for (method, path), model in body_models(app).items():
        if method == "PUT" or path in other_names:
            continue
        base = {name: json.dumps(value) for name, value in _base(model, model_name).items()}
        for name, value in _fields(model):
            given = {**base, name: value}
            found.setdefault(path, []).append(AwkwardRequest(method, path, name, _object(given)))
    return found


def _base(model: type[BaseModel], model_name: str) -> dict[str, Any]:
    base: dict[str, Any] = {}
    for name, field in model.model_fields.items():
        if field.is_required() or (name in ("model", "prompt") and "messages" not in base):
            base[field.alias or name] = EXAMPLES[name] if name in EXAMPLES else _example(field.annotation)
    return {name: model_name if name == "model" else value for name, value in base.items()}


def _fields(model: type[BaseModel]) -> Iterator[tuple[str, str]]:
    for name, field in model.model_fields.items():
        values = [*_of_type(field.annotation), *OF_WRONG_TYPE]
        values += [form.replace("%s", value) for form in INSIDE.get(name, ()) for value in OF_ANY_TYPE]
        for value in dict.fromkeys(values):
            yield field.alias or name, value


def _of_type(annotation: Any) -> Iterator[str]:
    arguments = get_args(annotation)
    match get_origin(annotation):
        case None if annotation in BY_TYPE:
            yield from BY_TYPE[annotation]
        case None if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
            yield from _of_model(annotation)
        case None:
            yield from OF_ANY_TYPE
        case origin if origin in (Union, UnionType):
            for argument in arguments:
                yield from _of_type(argument)
        case origin if origin is Annotated:
            yield from _of_type(arguments[0])
        case origin if origin is Literal:
            yield from (*map(json.dumps, arguments), '""', '"no"')
        case origin if origin is dict:
            yield from (*OBJECTS, *(f'{{"0": {value}}}' for value in _of_type(arguments[1])))
        case _:
            yield from (*LISTS, *(f"[{value}]" for value in _of_type(arguments[0])))


def _of_model(model: type[BaseModel]) -> Iterator[str]:
    yield from OBJECTS
    required = {
        each.alias or name: _example(each.annotation) for name, each in model.model_fields.items() if each.is_required()
    }
    for name, value in _fields(model):
        given = {**required, name: value}
        yield _object(given)


def _object(fields: dict[str, str]) -> str:
    return "{" + ", ".join(f"{json.dumps(name)}: {value}" for name, value in fields.items()) + "}"


def _example(annotation: Any) -> Any:
    """Return a value of a type that is nothing special."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType, Annotated):
        return _example(arguments[0])
    if origin is Literal:
        return arguments[0]
    if origin in (list, tuple):
        return [_example(arguments[0])]
    plain: dict[Any, Any] = {str: "x", int: 1, float: 1.0, bool: True}
    return plain.get(annotation, {})
