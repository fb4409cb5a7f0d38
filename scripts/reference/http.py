"""docs/reference/http.md: the routes of the OpenAPI document: fields of requests, responses, errors."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from scripts.reference.markdown import page as joined
from scripts.reference.markdown import table
from tokenwire.coordinator.api.openapi.document import openapi_document
from tokenwire.coordinator.api.openapi.security import Security
from tokenwire.coordinator.app import build_app
from tokenwire.coordinator.auth.settings import AdminSettings
from tokenwire.coordinator.output.settings import ApiSettings
from tokenwire.coordinator.settings import CoordinatorSettings

_INTRODUCTION = """# HTTP routes

*For those who look up a route or the type of a field.* `make reference` generates this page from the OpenAPI document
with all routes enabled; a running server shows its own at `/docs` and `/openapi.json`. What each field does: [field
by field](api.md). Every route may fail with a 500; [Errors](errors.md) explains all of them. Routes marked † need
`--enable-rl`, those marked ‡ also exist with `--enable-lora-routes` alone, § `--enable-render-route`."""
_NULL = {"type": "null"}
_WIDE = 1 << 31
"""Limits beyond are those of the integers of a protobuf message."""

Json = Mapping[str, Any]


def page() -> str:
    """Return the page."""
    return joined(_INTRODUCTION, *_Document().parts())


def _document(rl_routes: bool, lora_routes: bool) -> dict[str, Any]:
    settings = CoordinatorSettings(
        ("unix:/nowhere",),
        api=ApiSettings(render_route=rl_routes),
        admin=AdminSettings(rl_routes=rl_routes, lora_routes=lora_routes),
    )
    return openapi_document(build_app(settings).routes, Security(False, False, (), lambda _: False))


class _Document:
    """The document with all routes."""

    def __init__(self) -> None:
        full = _document(rl_routes=True, lora_routes=True)
        self._paths: Json = full["paths"]
        self._tags: Sequence[Json] = full["tags"]
        self._schemas: Json = full["components"]["schemas"]
        always = _document(rl_routes=False, lora_routes=False)["paths"].keys()
        with_lora = _document(rl_routes=False, lora_routes=True)["paths"].keys()
        self._marks = {
            path: "" if path in always else "§" if path.startswith("/tokenwire/") else "‡" if path in with_lora else "†"
            for path in self._paths
        }
        self._bodies: dict[str, str] = {}
        """The route by whose heading the fields of a body are listed."""

    def parts(self) -> Iterator[str]:
        """Yield headings, texts and tables, group by group."""
        for tag in self._tags:
            yield f"## {tag['name']}"
            yield str(tag["description"])
            for path, methods in self._paths.items():
                for method, operation in sorted(methods.items()):
                    if operation["tags"] == [tag["name"]]:
                        yield from self._operation(f"{method.upper()} {path}", self._marks[path], operation)
        yield "## Objects in requests"
        yield from self._objects()

    def _operation(self, name: str, mark: str, operation: Json) -> Iterator[str]:
        yield f"### `{name}` {mark}".rstrip()
        about = [f"{operation['summary']}.", operation.get("description", "")]
        yield " ".join(filter(None, about))
        yield from self._request(name, operation)
        errors = ", ".join(status for status in sorted(operation["responses"]) if status not in ("200", "500"))
        response = self._response(operation) if "200" in operation["responses"] else "only errors"
        yield f"Response: {response}. Errors: {errors or 'none of its own'}."

    def _request(self, name: str, operation: Json) -> Iterator[str]:
        schema = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
        if schema is None:
            return
        title = next(_references(schema))
        if not self._schemas[title].get("properties"):
            return
        if title in self._bodies:
            yield f"Request: as for `{self._bodies[title]}`."
        else:
            self._bodies[title] = name
            yield self._fields(title)

    def _fields(self, title: str) -> str:
        schema = self._schemas[title]
        required = schema.get("required", ())
        rows = [
            (
                f"`{name}`",
                self._type(each),
                "required" if name in required else _default(each),
                each.get("description", ""),
            )
            for name, each in sorted(schema["properties"].items(), key=lambda field: field[0] not in required)
        ]
        described = any(row[3] for row in rows)
        head = ("field", "type", "default", "description")
        return table(head[: 3 + described], [row[: 3 + described] for row in rows])

    def _objects(self) -> Iterator[str]:
        """Yield the objects that bodies contain, down to the innermost."""
        shown = set(self._bodies)
        while found := sorted({each for title in shown for each in self._within(title)} - shown):
            for title in found:
                shown.add(title)
                if self._schemas[title].get("properties"):
                    yield f"### {title}"
                    yield self._fields(title)

    def _within(self, title: str) -> Iterator[str]:
        yield from _references(self._schemas[title].get("properties", {}))

    def _response(self, operation: Json) -> str:
        content = operation["responses"]["200"].get("content", {})
        json, events = content.get("application/json"), content.get("text/event-stream")
        if json is None:
            return "text" if content else "empty"
        shown = self._answer(json["schema"])
        return f"{shown}; streamed: events of {self._answer(events['schema'])}" if events else shown

    def _answer(self, schema: Json) -> str:
        """Return the fields of a response's body."""
        if "anyOf" in schema:
            return " or ".join(self._answer(each) for each in schema["anyOf"] if each != _NULL)
        if schema.get("type") == "array":
            return f"list of {self._answer(schema['items'])}"
        if "$ref" not in schema:
            return self._type(schema)
        title = schema["$ref"].rpartition("/")[2]
        return ", ".join(f"`{name}`" for name in self._schemas[title].get("properties", {})) or "any object"

    def _type(self, schema: Json) -> str:
        if "$ref" in schema:
            title = schema["$ref"].rpartition("/")[2]
            if title in self._bodies:
                return f"body of `{self._bodies[title]}`"
            has_fields = self._schemas[title].get("properties")
            return f"[{title}](#{title.lower()})" if has_fields else self._type(self._schemas[title])
        for kinds in ("anyOf", "oneOf", "allOf"):
            if kinds in schema:
                return " or ".join(dict.fromkeys(self._type(each) for each in schema[kinds] if each != _NULL))
        if "enum" in schema or "const" in schema:
            return ", ".join(f"`{value}`" for value in schema.get("enum", [schema.get("const")]))
        return self._simple(schema)

    def _simple(self, schema: Json) -> str:
        kind: str = schema.get("type", "any")
        if kind == "array":
            return f"list of {self._type(schema.get('items', {}))}"
        limits = {"minimum": "at least", "exclusiveMinimum": "above", "maximum": "at most", "maxLength": "at most"}
        shown = [
            f"{words} {schema[limit]:g}" for limit, words in limits.items() if abs(schema.get(limit, _WIDE)) < _WIDE
        ]
        return ", ".join([{"string": "text"}.get(kind, kind), *shown])


def _default(schema: Json) -> str:
    value = schema.get("default")
    return "" if value in (None, [], {}) else f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _references(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        if "$ref" in schema:
            yield schema["$ref"].rpartition("/")[2]
        for value in schema.values():
            yield from _references(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from _references(value)
