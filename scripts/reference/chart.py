"""deploy/k8s/tokenwire/README.md: the values of the Helm chart, with their types, defaults and comments."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts.reference.markdown import page as joined
from scripts.reference.markdown import table

_CHART = Path(__file__).parents[2] / "deploy" / "k8s" / "tokenwire"
_INTRODUCTION = """# Chart of tokenwire

*For those who install it.* Coordinators, pools of workers, and what belongs to them: certificates, network policies,
autoscaling, monitoring. The guide is [docs/guides/kubernetes.md](../../../docs/guides/kubernetes.md), and `examples/`
has values to start from. `make reference` generates this page from `values.yaml`.

Build the images and push them to a registry of yours first: [the guide's
commands](../../../docs/guides/kubernetes.md#images). Then:

```sh
helm install demo deploy/k8s/tokenwire --namespace llm --create-namespace \\
  --values deploy/k8s/tokenwire/examples/cpu-demo.yaml --set imageRegistry=registry.example.com
```

`values.schema.json` rejects unknown values and wrong types."""
_KEY = re.compile(r"(?P<indent> *)(?P<key>\w+):(?: +(?P<value>[^#\s](?:[^#]|(?<! )#)*?))?(?: +# (?P<comment>.*))?$")


@dataclass(frozen=True)
class _Value:
    path: tuple[str, ...]
    default: str
    comment: str


def page() -> str:
    """Return the page."""
    schema = json.loads((_CHART / "values.schema.json").read_text())
    sections: dict[str, list[_Value]] = {"": []}
    for value in _values((_CHART / "values.yaml").read_text()):
        sections.setdefault(value.path[0] if len(value.path) > 1 or not value.default else "", []).append(value)
    parts = (part for name, values in sections.items() for part in _section(schema, name, values))
    return joined(_INTRODUCTION, *parts)


def _section(schema: dict[str, Any], name: str, values: list[_Value]) -> Iterator[str]:
    yield f"## {name or 'The whole chart'}"
    yield from (value.comment for value in values if not value.default)
    rows = [
        (f"`{'.'.join(value.path)}`", _type(schema, value.path), f"`{value.default}`", value.comment)
        for value in values
        if value.default
    ]
    yield table(("value", "type", "default", "description"), rows)


def _values(text: str) -> Iterator[_Value]:
    """Yield the values, and the commented keys of the file's top level, which have no default.

    Comments before a key, and beside it, are its own; those of a map with keys of its own are its first value's.
    """
    path: list[str] = []
    comments: list[str] = []
    for line in text.splitlines():
        if line.strip().startswith("# "):
            comments.append(line.strip().removeprefix("# "))
            continue
        found = _KEY.fullmatch(line)
        if found is None:
            comments.clear()
            continue
        del path[len(found["indent"]) // 2 :]
        path.append(found["key"])
        comments += [found["comment"]] if found["comment"] else []
        if found["value"] or (len(path) == 1 and comments):
            yield _Value(tuple(path), found["value"] or "", _text(comments))
            comments.clear()


def _text(comments: list[str]) -> str:
    """Return lines of prose as one text, and remarks of a few words as an enumeration."""
    return "".join(each + (" " if each.endswith((".", ":")) else "; ") for each in comments).rstrip(" ;")


def _type(schema: dict[str, Any], path: tuple[str, ...]) -> str:
    """Return the type of a value according to the schema."""
    found = schema
    for key in path:
        found = _resolved(schema, found)["properties"][key]
    found = _resolved(schema, found)
    if "enum" in found:
        return ", ".join(f"`{value}`" for value in found["enum"] if value != "")
    kinds = [each.get("type", "string") for each in found.get("anyOf", found.get("oneOf", ()))] or found.get(
        "type", "any"
    )
    return " or ".join(kinds) if isinstance(kinds, list) else str(kinds)


def _resolved(schema: dict[str, Any], part: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in part:
        part = schema["definitions"][part["$ref"].rpartition("/")[2]]
    return part
