"""Fields that nobody serves: refused by name, or ignored once."""

import logging
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict

from tokenwire.coordinator.api.fields.unsupported import UnsupportedFields
from tokenwire.errors import InvalidRequest

NOT_SERVED: dict[str, tuple[Any, ...]] = {"suffix": (None, ""), "use_beam_search": (None, False)}


@pytest.mark.parametrize("fields", [{"suffix": "x"}, {"use_beam_search": True}])
def test_known_fields_that_are_not_served_are_refused(fields: dict[str, Any]) -> None:
    """The error names the field."""
    with pytest.raises(InvalidRequest) as caught:
        UnsupportedFields(NOT_SERVED).check(fields)

    assert caught.value.param == next(iter(fields))


def test_values_that_change_nothing_pass() -> None:
    """Clients that spell defaults out are served."""
    UnsupportedFields(NOT_SERVED).check({"suffix": "", "use_beam_search": False})
    UnsupportedFields(NOT_SERVED).check(None)


class _Body(BaseModel):
    model_config = ConfigDict(extra="allow")

    suffix: str | None = None
    use_beam_search: bool = False


@pytest.mark.parametrize("fields", [{"suffix": "x"}, {"use_beam_search": True, "suffix": ""}])
def test_fields_whose_types_are_declared_are_refused_as_well(fields: dict[str, Any]) -> None:
    """Whether a model knows a field's type or not, a value that is not served is refused by name."""
    gate = UnsupportedFields(NOT_SERVED)
    gate.check_body(_Body(use_beam_search=False))

    with pytest.raises(InvalidRequest) as caught:
        gate.check_body(_Body(**fields))

    assert caught.value.param == next(iter(fields))


def test_unknown_fields_are_named_once(caplog: pytest.LogCaptureFixture) -> None:
    """The log names an unknown field at its first appearance only; harmless ones never."""
    gate = UnsupportedFields(NOT_SERVED)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            gate.check({"frobnicate": 1, "metadata": {}, "store": True})

    assert [record.args for record in caplog.records] == [('"frobnicate"',)]
