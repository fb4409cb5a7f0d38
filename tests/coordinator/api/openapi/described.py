"""Validates responses strictly against an OpenAPI document, so that it omits no field."""

import json
from typing import Any

import httpx
from jsonschema_rs import Draft202012Validator


class Described:
    """An OpenAPI document, for checking responses."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.document = document
        self._strict = _closed(document)
        self._validators: dict[str, Draft202012Validator] = {}

    def check(self, path: str, response: httpx.Response) -> None:
        """Check a response of a route, with any status, against its description."""
        method = response.request.method.lower()
        declared = self._strict["paths"][path][method]["responses"]
        assert str(response.status_code) in declared, f"{path}: {response.status_code} {response.text[:500]}"
        answer = declared[str(response.status_code)]
        if "$ref" in answer:
            answer = self._strict["components"]["responses"][answer["$ref"].rpartition("/")[2]]
        media_type = response.headers.get("content-type", "").partition(";")[0]
        if not response.content:
            assert "application/jsonl" in answer.get("content", ["application/jsonl"]), path  # it may have no lines
            return
        assert media_type in answer["content"], f"{path}: {media_type}"
        for value in _bodies(response, media_type):
            self._validate(path, value, answer["content"][media_type]["schema"])

    def _validate(self, path: str, value: Any, schema: dict[str, Any]) -> None:
        key = json.dumps(schema)
        if key not in self._validators:
            self._validators[key] = Draft202012Validator({**schema, "components": self._strict["components"]})
        problems = [
            f"{error.instance_path}: {error.message[:300]}" for error in self._validators[key].iter_errors(value)
        ]
        assert not problems, f"{path}: {problems}"


def _bodies(response: httpx.Response, media_type: str) -> list[Any]:
    if media_type == "text/event-stream":
        lines = [line.removeprefix("data: ") for line in response.text.splitlines() if line.startswith("data: ")]
        return [json.loads(line) for line in lines if line != "[DONE]"]
    return [response.text if media_type == "text/plain" else response.json()]


def _closed(value: Any) -> Any:
    """Return a document whose objects allow only the fields that it names."""
    if isinstance(value, list):
        return [_closed(each) for each in value]
    if not isinstance(value, dict):
        return value
    closed = {name: _closed(each) for name, each in value.items()}
    if "properties" in closed and closed.get("type") == "object":
        closed.setdefault("additionalProperties", False)
    return closed
