"""The files of a model's tokenizer: its settings, with the chat templates of all the places that may have them."""

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from tokenwire.coordinator.text.special_tokens import merge_legacy_map
from tokenwire.errors import InvalidRequest

_NAMED_TEMPLATES = "additional_chat_templates"

_MOST_CONFIG_BYTES = 8 * 2**20
_MOST_CONFIG_SIGNS = 2**20
"""Of a file of settings, and its commas, colons and brackets. One of 28,000 added tokens has 0.4 million of these.

Parsing one stops all other threads, and takes many times its size.
"""


def read_directory(path: str | Path) -> dict[str, bytes]:
    """Return a model directory's tokenizer files by name. Raises InvalidRequest that names a missing file."""
    folder = Path(path)
    if not (folder / "tokenizer.json").is_file():
        what = "tokenizer.json in it" if folder.is_dir() else "such directory"
        raise InvalidRequest(f"The tokenizer cannot be loaded from {folder}: there is no {what}.")
    names = ["tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja"]
    paths = [folder / name for name in names if (folder / name).is_file()]
    paths += sorted((folder / _NAMED_TEMPLATES).glob("*.jinja"))
    return {str(file.relative_to(folder)): file.read_bytes() for file in paths}


def settings_of(files: Mapping[str, bytes]) -> dict[str, Any]:
    """Return the settings among files by name; `chat_template` is one, some by name, or None. Raises InvalidRequest."""
    config = merge_legacy_map(
        _json_object(files, "tokenizer_config.json"), _json_object(files, "special_tokens_map.json")
    )
    templates = _template_files(files)
    if templates:
        config["chat_template"] = templates.get("default") if list(templates) == ["default"] else templates
    config["chat_template"] = _template(config.get("chat_template"))
    return config


def templates_of(chat_template: str | Mapping[str, str] | None) -> Collection[str]:
    """Return the texts of the templates of settings."""
    return chat_template.values() if isinstance(chat_template, Mapping) else [chat_template or ""]


def _json_object(files: Mapping[str, bytes], name: str) -> dict[str, Any]:
    if name not in files:
        return {}
    if len(files[name]) > _MOST_CONFIG_BYTES:
        raise InvalidRequest(f"The {name} has {len(files[name]):,} bytes: at most {_MOST_CONFIG_BYTES:,} are allowed.")
    if sum(map(files[name].count, b",:[{")) > _MOST_CONFIG_SIGNS:
        raise InvalidRequest(f"The {name} has too many values, lists and objects to be read.")
    try:
        value = json.loads(files[name])
    except ValueError as error:
        raise InvalidRequest(f"The {name} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise InvalidRequest(f"The {name} is not a JSON object.")
    return value


def _template_files(files: Mapping[str, bytes]) -> dict[str, str]:
    # Template files take precedence over tokenizer_config.json.
    templates = {}
    if "chat_template.jinja" in files:
        templates["default"] = files["chat_template.jinja"].decode()
    for name in sorted(files):
        if name.startswith(f"{_NAMED_TEMPLATES}/"):
            templates[Path(name).stem] = files[name].decode()
    return templates


def _template(value: object) -> str | dict[str, str] | None:
    if isinstance(value, list):
        value = {entry["name"]: entry["template"] for entry in value}
    return value if isinstance(value, str | dict) else None
