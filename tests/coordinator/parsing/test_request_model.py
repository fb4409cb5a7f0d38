"""The cost of validating an invalid body, counted in errors: each takes time and memory."""

from typing import Any

import pytest
from pydantic import BaseModel, ValidationError
from starlette.applications import Starlette

from tests.bodies import all_models
from tokenwire.coordinator.app import build_app
from tokenwire.coordinator.auth.settings import AdminSettings
from tokenwire.coordinator.parsing.request_model import RequestModel
from tokenwire.coordinator.settings import CoordinatorSettings

MANY = 500
WRONG: list[Any] = [
    [{}] * MANY,
    [0.5] * MANY,
    [[{}]] * MANY,
    [[0.5] * MANY] * 2,
    {str(i): {} for i in range(MANY)},
    {str(i): [0.5] for i in range(MANY)},
    {str(i): "x" for i in range(MANY)},
]
"""Valid for some types, and invalid a thousand times for others."""


@pytest.fixture(scope="module")
def app() -> Starlette:
    """An application with all routes."""
    return build_app(CoordinatorSettings(("127.0.0.1:1",), admin=AdminSettings(rl_routes=True)))


def test_every_body_is_parsed_with_a_request_model(app: Starlette) -> None:
    """Nested models too: a plain one would collect an error for every invalid item of a list."""
    models = all_models(app)

    assert len(models) > 30
    assert {model.__name__ for model in models if not issubclass(model, RequestModel)} == set()


def test_no_field_causes_many_errors(app: Starlette) -> None:
    """An invalid list or object is one error for each type that it may have."""
    for model in sorted(all_models(app), key=lambda each: each.__name__):
        for name, field in model.model_fields.items():
            for wrong in WRONG:
                assert _errors(model, {field.alias or name: wrong}) < 20, (model, name, wrong)


def _errors(model: type[BaseModel], given: dict[str, Any]) -> int:
    try:
        model.model_validate(given)
    except ValidationError as error:
        return error.error_count()
    except Exception:  # a validator of the field's own, which stops at once
        return 1
    return 0
