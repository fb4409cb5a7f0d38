"""The models that routes read their bodies with, found through the routes."""

import inspect
from collections.abc import Iterator
from typing import Any, get_args

from pydantic import BaseModel
from starlette.applications import Starlette

from tokenwire.coordinator.api.admin.form import Form
from tokenwire.coordinator.api.router import ApiRoute


def body_models(app: Starlette) -> dict[tuple[str, str], type[BaseModel]]:
    """Return the model of every route that has one, by method and path."""
    found: dict[tuple[str, str], type[BaseModel]] = {}
    for route in app.routes:
        model = _body_model(route) if isinstance(route, ApiRoute) else None
        if isinstance(route, ApiRoute) and model is not None:
            found |= {(method, route.path): model for method in sorted(route.methods)}
    return found


def _body_model(route: ApiRoute) -> type[BaseModel] | None:
    if route.body is not None:
        return route.body
    # Admin routes read their forms themselves, from the query or the body.
    used = inspect.getclosurevars(route.endpoint).globals.values()
    forms = [each for each in used if inspect.isclass(each) and issubclass(each, Form)]
    return forms[0] if forms else None


def all_models(app: Starlette) -> set[type[BaseModel]]:
    """Return the models of all bodies, and those inside of them."""
    return _with_inner(set(body_models(app).values()))


def models_within(annotation: Any) -> set[type[BaseModel]]:
    """Return the models that an annotation names, and those inside of them."""
    return _with_inner(set(models_in(annotation)))


def _with_inner(unseen: set[type[BaseModel]]) -> set[type[BaseModel]]:
    found: set[type[BaseModel]] = set()
    while unseen:
        found |= unseen
        inner = {
            each for model in unseen for field in model.model_fields.values() for each in models_in(field.annotation)
        }
        unseen = inner - found
    return found


def models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield the models that an annotation names."""
    if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from models_in(argument)
