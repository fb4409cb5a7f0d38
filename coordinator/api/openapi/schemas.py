"""The schemas of the OpenAPI document."""

from typing import Any

from pydantic import BaseModel, TypeAdapter

_REFERENCE = "#/components/schemas/{model}"


class Schemas:
    """The `components.schemas` of a document under construction."""

    def __init__(self) -> None:
        self.all: dict[str, Any] = {}

    def of(self, kind: Any) -> dict[str, Any]:
        """Return the schema of a type, and add those that it refers to."""
        schema = TypeAdapter(kind).json_schema(ref_template=_REFERENCE)
        for name, part in schema.pop("$defs", {}).items():
            self._add(name, part)
        if not (isinstance(kind, type) and issubclass(kind, BaseModel)):
            return schema
        self._add(kind.__name__, schema)
        return {"$ref": _REFERENCE.format(model=kind.__name__)}

    def parameters(self, form: type[BaseModel]) -> list[dict[str, Any]]:
        """Return the fields of a model that fit into a query, as query parameters."""
        fields: dict[str, Any] = TypeAdapter(form).json_schema(ref_template=_REFERENCE)["properties"]
        return [
            {"name": name, "in": "query", "required": False, "schema": schema}
            for name, schema in fields.items()
            if not _is_object(schema)
        ]

    def _add(self, name: str, schema: dict[str, Any]) -> None:
        if self.all.setdefault(name, schema) != schema:
            raise ValueError(f"two different schemas are named {name}")


def _is_object(schema: dict[str, Any]) -> bool:
    return any(part.get("type") == "object" for part in (schema, *schema.get("anyOf", ())))
