"""What validation of a wrong body costs: counted in errors, of which each takes time and memory."""

from typing import Any

import pytest
from fastapi import FastAPI
from pydantic import BaseModel, ValidationError

from tests.bodies import all_models
from tokenwire.coordinator.app import build_app
from tokenwire.coordinator.auth.settings import ControlSettings
from tokenwire.coordinator.settings import CoordinatorSettings
from tokenwire.request_model import RequestModel

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
"""Right for some types, and wrong a thousand times for others."""


@pytest.fixture(scope="module")
def app() -> FastAPI:
    """An application with all routes."""
    return build_app(CoordinatorSettings(("127.0.0.1:1",), control=ControlSettings(rl_routes=True)))


def test_every_body_is_read_with_a_request_model(app: FastAPI) -> None:
    """Also what is inside of it: a plain model would collect an error for every wrong item of a list."""
    models = all_models(app)

    assert len(models) > 30
    assert {model.__name__ for model in models if not issubclass(model, RequestModel)} == set()


def test_no_field_makes_many_errors(app: FastAPI) -> None:
    """Whatever is wrong with a list or an object, it is wrong once for each type that it may have."""
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
