"""Grammars that a worker would compile for minutes, or crash on, are rejected; ordinary ones are not."""

import json
import time
from typing import Any

import pytest

from tokenwire.coordinator.generation.grammar_limits import (
    MAX_GRAMMAR_CHARS,
    MAX_LENGTHS,
    MAX_NESTING,
    MAX_REGEX_CHARS,
    MAX_REPETITIONS,
    check_grammar,
)
from tokenwire.errors import InvalidRequest
from tokenwire.v1 import inference_pb2 as pb


def nested(levels: int) -> Any:
    """Return a schema of objects nested to a depth."""
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels - 1):
        schema = {"items": schema}
    return schema


def grammar(kind: str, value: Any) -> pb.StructuredOutputs:
    """Return structured outputs."""
    if kind == "choice":
        return pb.StructuredOutputs(choice=pb.Choices(values=value))
    wire = pb.StructuredOutputs()
    setattr(wire, kind, value if isinstance(value, str) else json.dumps(value))
    return wire


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("regex", r"\d{4}-\d{2}-\d{2}|[({]{1,3}\(\(\("),
        ("regex", "(" * MAX_NESTING + "a" + ")" * MAX_NESTING),
        ("regex", "[(]" * 1000),
        ("grammar", 'root ::= "(" * 3 | "{1,999999999}" # ((((\n' + 'a ::= "((((("\n' * 100),
        ("json_schema", nested(MAX_NESTING)),
        ("json_schema", {"properties": {f"p{n}": {"maxLength": n % MAX_LENGTHS} for n in range(MAX_REPETITIONS)}}),
        ("json_schema", {"properties": {f"p{n}": {"minProperties": n, "maxItems": n} for n in range(MAX_REPETITIONS)}}),
        ("json_schema", {"maxItems": 10**9, "pattern": "^[a-z]{2,10}$"}),
        ("json_schema", "no JSON: the engine says so"),
        ("json_schema", {"type": "object", "properties": {"next": {"$ref": "#"}, "$ref": {"type": "string"}}}),
        ("json_schema", {"$ref": "#/$defs/a~1b", "$defs": {"a/b": {"$ref": "#/$defs/c"}, "c": {"type": "null"}}}),
        ("json_schema", {"$ref": "#/nowhere"}),
        ("structural_tag", {"type": "structural_tag", "structures": [], "triggers": ["<"]}),
        ("structural_tag", nested(MAX_NESTING + 10)),
        ("choice", ["yes", "no"]),
    ],
)
def test_ordinary_grammars_pass(kind: str, value: Any) -> None:
    """Up to the limits; parts that only look like groups and repetitions are not counted."""
    check_grammar(grammar(kind, value))


@pytest.mark.parametrize(
    ("kind", "value", "words"),
    [
        ("json_schema", {"$ref": "#"}, "leads back to itself"),
        ("json_schema", {"items": {"$ref": "#/items"}}, "leads back to itself"),
        ("json_schema", {"a": {"$ref": "#/b"}, "b": {"$ref": "#/c"}, "c": {"$ref": "#/b"}}, "leads back to itself"),
        ("structural_tag", {"type": "structural_tag", "structures": [], "triggers": ["<", ""]}, "empty trigger"),
        ("structural_tag", {"format": {"type": "triggered_tags", "triggers": [""], "tags": []}}, "empty trigger"),
        ("regex", "a" * (MAX_REGEX_CHARS + 1), "characters"),
        ("regex", "(" * (MAX_NESTING + 1), "nested too deeply"),
        ("regex", '"' + "(" * (MAX_NESTING + 1) + '"', "nested too deeply"),
        ("regex", "a{1,100001}", "repeats something 100001 times, more than 100000"),
        ("regex", "a{ 1 , " + "9" * 10_000 + " }", r"something 9{20}\.\.\. times, more than 100000"),
        ("regex", "a{1,2}" * (MAX_REPETITIONS + 1), "more often than"),
        ("grammar", "x" * (MAX_GRAMMAR_CHARS + 1), "characters"),
        ("grammar", 'root ::= "a"{1,100001}', "100001 times, more than 100000"),
        ("grammar", "root ::= " + "(" * (MAX_NESTING + 1), "nested too deeply"),
        ("json_schema", nested(MAX_NESTING + 1), "nested too deeply"),
        ("json_schema", "[" * 100_000, "nested too deeply"),
        ("json_schema", {"enum": ["x" * MAX_GRAMMAR_CHARS]}, "characters"),
        ("json_schema", {"a": [{"maxLength": 9} for n in range(MAX_REPETITIONS + 1)]}, "more often than"),
        ("json_schema", {"a": [{"maxLength": n} for n in range(250)]}, "has 250 different lengths .* more than 16"),
        ("json_schema", {"a": [{"minLength": n, "maxLength": 99} for n in range(MAX_LENGTHS + 1)]}, "has 17 different"),
        ("json_schema", {"a": [{"pattern": f"^{n}a*$"} for n in range(MAX_LENGTHS + 1)]}, "has 17 different"),
        ("json_schema", {"patternProperties": {f"^{n}a*$": {} for n in range(MAX_LENGTHS + 1)}}, "has 17 different"),
        ("json_schema", {"items": {"pattern": "a{1,100001}"}}, "100001 times, more than 100000"),
        ("json_schema", {"patternProperties": {"a{1,100001}": {}}}, "100001 times, more than 100000"),
        ("structural_tag", nested(MAX_NESTING + 17), "nested too deeply"),
        ("choice", ["x"] * 10_001, "choices"),
        ("choice", ["x" * MAX_GRAMMAR_CHARS, "x"], "characters"),
    ],
)
def test_grammars_beyond_the_limits_are_rejected(kind: str, value: Any, words: str) -> None:
    """The message and the param name the field; for a schema that is too deep the message is vLLM's."""
    with pytest.raises(InvalidRequest, match=words) as rejected:
        check_grammar(grammar(kind, value))

    assert rejected.value.param == f"structured_outputs.{'json' if kind == 'json_schema' else kind}"
    assert rejected.value.param in rejected.value.message or rejected.value.message.startswith("The JSON schema is")


@pytest.mark.parametrize("piece", ["[", "[\\", '"', "{", "{ ", "{1", "{1,", "\\", "#", "(", "a{1 "])
def test_checks_take_linear_time(piece: str) -> None:
    """A text made for backtracking, which would take minutes, is read once."""
    started = time.process_time()
    for kind, size in (("regex", MAX_REGEX_CHARS), ("grammar", MAX_GRAMMAR_CHARS)):
        try:
            check_grammar(grammar(kind, piece * (size // len(piece))))
        except InvalidRequest:
            continue
    assert time.process_time() - started < 2
