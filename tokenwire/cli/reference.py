"""Writes what is derived from declared options: docs/options.md, and the chart's schema of `options`.

Run at the top of a checkout, by `make reference`.
"""

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from tokenwire.cli.coordinator import COORDINATOR_OPTIONS
from tokenwire.cli.serve import SERVE_OPTIONS
from tokenwire.cli.worker import WORKER_OPTIONS
from tokenwire.options import Bounds, Declared, Section

PAGE = Path("docs", "options.md")
CHART = Path("deploy", "k8s", "tokenwire")
SCHEMA = CHART / "values.schema.json"

_COMMANDS = {"serve": SERVE_OPTIONS, "coordinator": COORDINATOR_OPTIONS, "worker": WORKER_OPTIONS}
_INTRODUCTION = """# Options

Every option of `tokenwire serve`, `tokenwire coordinator` and `tokenwire worker`. The command line counts before the
environment. The variable of an option that may be repeated holds values with spaces between them, that of a switch `1`
or `0`. What follows `--` on a command line are vLLM's own engine arguments.

This page is made by `make reference` from the settings that declare the options.
"""
_TEMPLATES = {
    "coordinator": ("coordinator/deployment.yaml", "_helpers.tpl"),
    "worker": ("worker/_pod.tpl", "_helpers.tpl"),
}
_RENDERED_FLAG = re.compile(r'^\s*- (?:\{\{ printf ")?(--[a-z][a-z-]*)', re.MULTILINE)
_GENERATED = '    "coordinatorOptions": {'
"""Where the generated part of the schema begins, its last definitions."""


def page() -> str:
    """Return the reference of all options."""
    every: dict[str, Declared] = {}
    for options in _COMMANDS.values():
        every |= {name: each for name, each in options.items() if not each.option.hidden}
    sections = [_section(section, every) for section in Section]
    return "\n".join([_INTRODUCTION, *filter(None, sections)])


def _section(section: Section, every: Mapping[str, Declared]) -> str:
    rows = [_row(name, each) for name, each in every.items() if each.option.section is section]
    if not rows:
        return ""
    head = ["option", "environment", "value", "default", "of", ""]
    lines = [_line(head), _line(["---"] * len(head)), *map(_line, rows)]
    title = "General" if section is Section.GENERAL else section.value
    return "\n".join([f"## {title}", "", *lines, ""])


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _row(name: str, each: Declared) -> list[str]:
    about = each.option
    commands = ", ".join(command for command, options in _COMMANDS.items() if name in options)
    flag = f"`{about.flag}`" if about.flag else ""
    return [flag, f"`{about.environment_variable}`", _value(each), _default(each), commands, about.help]


def _value(each: Declared) -> str:
    if each.is_switch:
        return "switch"
    if each.choices:
        return ", ".join(f"`{choice}`" for choice in each.choices)
    names = {int: "integer", float: "number", str: "text", Path: each.option.path.removeprefix("existing ")}
    kind = each.option.unit.name if each.option.unit else names[each.kind].replace("any", "path")
    bounds = f", {each.option.bounds}" if each.option.bounds else ""
    return f"{kind}{bounds}{', repeated' if each.repeated else ''}"


def _default(each: Declared) -> str:
    if each.option.default_text:
        return each.option.default_text
    if each.is_switch:
        return ("on" if each.default else "off") if "/" in each.option.flag else ""
    if each.required:
        return "required"
    shown = f"{each.default:g}" if isinstance(each.default, float) else each.default
    return "" if shown in (None, "") else f"`{shown}`"


def schema(text: str, templates: Path = CHART / "templates") -> str:
    """Return the chart's schema with the definitions of options as they are now."""
    written, found, _ = text.partition(_GENERATED)
    if not found:
        raise ValueError(f"the schema has no line {_GENERATED!r}")
    definitions = [
        _definition(
            half, {name: each for name, each in _COMMANDS[half].items() if name not in _rendered(half, templates)}
        )
        for half in _TEMPLATES
    ]
    return written + ",\n".join(definitions) + "\n  }\n}\n"


def _rendered(half: str, templates: Path) -> set[str]:
    """Return the flags that the chart's templates give: there are values for these."""
    return {flag for name in _TEMPLATES[half] for flag in _RENDERED_FLAG.findall((templates / name).read_text())}


def _definition(half: str, options: Mapping[str, Declared]) -> str:
    shown = [each for each in options.values() if each.option.is_flag and not each.option.hidden]
    flags = [f"        {json.dumps(_key(each))}: {json.dumps(_property(each))}" for each in shown]
    head = [
        f'    "{half}Options": {{',
        f'      "description": "Options of `tokenwire {half}` without the dashes; made by `make reference`.",',
        '      "type": "object",',
        '      "additionalProperties": false,',
        '      "properties": {',
    ]
    return "\n".join([*head, ",\n".join(flags), "      }", "    }"])


def _key(each: Declared) -> str:
    """Return the name of a value; of a switch with two sides the one that changes something."""
    on, _, off = each.option.flag.partition("/")
    return (off if off and each.default else on).removeprefix("--")


def _property(each: Declared) -> dict[str, object]:
    types = {bool: "boolean", int: "integer", float: "number"}
    one: dict[str, object] = {"type": types.get(each.kind, "string"), **_limits(each.option.bounds)}
    if each.choices:
        one = {"enum": list(each.choices)}
    about = {"type": "array", "items": one} if each.repeated else one
    negated = f"The opposite of {each.option.name}: " if _key(each) != each.option.name.removeprefix("--") else ""
    return {**about, "description": negated + each.option.help}


def _limits(bounds: Bounds | None) -> dict[str, object]:
    if bounds is None:
        return {}
    limits = {"minimum": bounds.at_least, "exclusiveMinimum": bounds.above, "maximum": bounds.at_most}
    return {name: limit for name, limit in limits.items() if limit is not None}


def main() -> None:
    """Write both."""
    PAGE.write_text(page())
    SCHEMA.write_text(schema(SCHEMA.read_text()))


if __name__ == "__main__":
    main()
