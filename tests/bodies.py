"""The models that routes read their bodies with, found by asking the routes."""

import inspect
from collections.abc import Iterator
from typing import Any, get_args

from fastapi import FastAPI
from fastapi.routing import APIRoute
from pydantic import BaseModel

from tokenwire.coordinator.api.admin.form import Form


def body_models(app: FastAPI) -> dict[tuple[str, str], type[BaseModel]]:
    """Return the model of every route that has one, by method and path."""
    found: dict[tuple[str, str], type[BaseModel]] = {}
    for route in app.routes:
        model = _body_model(route) if isinstance(route, APIRoute) else None
        if isinstance(route, APIRoute) and model is not None:
            found |= {(method, route.path): model for method in sorted(route.methods)}
    return found


def _body_model(route: APIRoute) -> type[BaseModel] | None:
    if route.body_field is not None:
        (model,) = _models_in(route.body_field.field_info.annotation)
        return model
    # Admin routes read their forms themselves, from the query or the body.
    used = inspect.getclosurevars(route.endpoint).globals.values()
    forms = [each for each in used if inspect.isclass(each) and issubclass(each, Form)]
    return forms[0] if forms else None


def all_models(app: FastAPI) -> set[type[BaseModel]]:
    """Return the models of all bodies, and those inside of them."""
    found: set[type[BaseModel]] = set()
    unseen = set(body_models(app).values())
    while unseen:
        found |= unseen
        inner = {
            each for model in unseen for field in model.model_fields.values() for each in _models_in(field.annotation)
        }
        unseen = inner - found
    return found


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models_in(argument)
