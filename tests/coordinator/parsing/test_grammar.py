"""Grammars of vLLM's parsers become the protocol's."""

from types import SimpleNamespace
from typing import Any

import pytest

from tokenwire.coordinator.parsing import grammar


@pytest.mark.parametrize(
    ("fields", "kind", "value"),
    [
        ({"json": {"type": "object"}}, "json_schema", '{"type": "object"}'),
        ({"json": "{}"}, "json_schema", "{}"),
        ({"regex": "a+"}, "regex", "a+"),
        ({"grammar": "root ::= x"}, "grammar", "root ::= x"),
        ({"json_object": True}, "json_object", True),
        ({"structural_tag": "{}"}, "structural_tag", "{}"),
    ],
)
def test_grammars_are_converted_to_the_protocol(fields: dict[str, Any], kind: str, value: object) -> None:
    """Every kind, with its options."""
    message = grammar.to_wire(_params(**fields, whitespace_pattern=" ?"))
    assert message.WhichOneof("constraint") == kind
    assert getattr(message, kind) == value
    assert message.whitespace_pattern == " ?"


def test_choices_are_converted_to_the_protocol() -> None:
    """As a list of texts."""
    message = grammar.to_wire(_params(choice=["a", "b"]))
    assert list(message.choice.values) == ["a", "b"]
    assert not message.HasField("whitespace_pattern")


def _params(**fields: Any) -> Any:
    names = ("json", "regex", "choice", "grammar", "json_object", "structural_tag", "whitespace_pattern")
    flags = {"disable_any_whitespace": False, "disable_additional_properties": False}
    return SimpleNamespace(**{**dict.fromkeys(names), **flags, **fields})
