"""Schemas with what a grammar leaves out are found."""

import pytest

from tokenwire.worker.simulated_engine.schema_limits import find_ignored


@pytest.mark.parametrize(
    ("schema", "ignored"),
    [
        ({"type": "string", "pattern": "a", "enum": [{"not": 1}], "default": {"if": 2}}, ""),
        ({"properties": {"not": {"type": "string"}}, "uniqueItems": False}, ""),
        ({"properties": {"a": {"anyOf": [{"type": "null"}, {"multipleOf": 3}]}}}, "'multipleOf'"),
        ({"$defs": {"a": {"items": {"not": {}}}}}, "'not'"),
        ({"items": {"pattern": "a", "maxLength": 2}}, "'pattern' with 'maxLength'"),
        ({"allOf": [{}, {}]}, "'allOf' with several schemas"),
        ({"allOf": [{}]}, ""),
        (True, ""),
    ],
)
def test_a_keyword_that_is_left_out_is_named(schema: object, ignored: str) -> None:
    """Wherever a schema has it, but not where it is a name or a value."""
    assert find_ignored(schema) == ignored
