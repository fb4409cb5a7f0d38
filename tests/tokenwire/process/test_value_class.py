"""Classes of values: equal by their fields, and assignments are errors of types."""

from dataclasses import field, replace

import pytest

from tokenwire.process.value_class import value_class


@value_class
class Point:
    """A value with a default and a list."""

    x: int
    y: int = 0
    names: list[str] = field(default_factory=list)


def test_values_are_equal_by_their_fields() -> None:
    """They are compared, replaced and made as dataclasses are, and have no other attributes."""
    assert replace(Point(1), y=2) == Point(1, 2) != Point(1)
    with pytest.raises(AttributeError):
        Point(1).z = 3  # type: ignore[attr-defined]


def test_values_in_sets() -> None:
    """Those with fields that can be hashed can be hashed."""

    @value_class
    class Name:
        """A value that can be hashed."""

        text: str

    assert {Name("a"), Name("a")} == {Name("a")}


def test_type_checkers_reject_assignments() -> None:
    """What a frozen dataclass raises is an error of mypy's, which would report a comment that ignores none."""
    point = Point(1)
    point.x = 2  # type: ignore[misc]
    assert point == Point(2)
