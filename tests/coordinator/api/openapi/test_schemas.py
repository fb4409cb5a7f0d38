"""The schemas of the document."""

import json

import pytest
from pydantic import BaseModel, create_model

from tests.coordinator.api.applications import all_routes
from tests.coordinator.api.openapi.documents import document_of
from tokenwire.coordinator.api.openapi.schemas import Schemas
from tokenwire.coordinator.app import build_app


async def test_every_reference_resolves() -> None:
    """Every referenced part exists, and every schema is referenced."""
    document = await document_of(build_app(all_routes("127.0.0.1:1")))
    text = json.dumps(document)
    kinds = ("schemas", "responses")
    there = {f"#/components/{kind}/{name}" for kind in kinds for name in document["components"][kind]}

    assert {part.split('"')[0] for part in text.split('"$ref": "')[1:]} == there


class Colour(BaseModel):
    """A part."""

    name: str


class Paint(BaseModel):
    """A whole with a part."""

    colour: Colour
    litres: int = 1


def test_models_are_references_to_what_is_described_once() -> None:
    """With the models inside of them; other types are described where they are."""
    schemas = Schemas()

    assert schemas.of(Paint) == schemas.of(Paint) == {"$ref": "#/components/schemas/Paint"}
    assert schemas.of(list[Colour]) == {"items": {"$ref": "#/components/schemas/Colour"}, "type": "array"}
    assert schemas.all.keys() == {"Paint", "Colour"}


def test_two_schemas_of_one_name_are_an_error() -> None:
    """One would replace the other in the document."""
    schemas = Schemas()
    schemas.of(Colour)

    with pytest.raises(ValueError, match="named Colour"):
        schemas.of(create_model("Colour", hue=(int, 0)))


def test_fields_that_fit_into_a_query_are_parameters() -> None:
    """Objects are not among them."""
    form = create_model("Wall", litres=(int, 1), extra=(dict[str, int] | None, None))

    (parameter,) = Schemas().parameters(form)

    assert (parameter["name"], parameter["in"], parameter["required"]) == ("litres", "query", False)
