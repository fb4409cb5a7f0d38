"""The settings among a tokenizer's files: templates from all places, and none that would stop others."""

import json

import pytest

from tokenwire.coordinator.text.tokenizer_files import settings_of, templates_of
from tokenwire.errors import InvalidRequest


@pytest.mark.parametrize(
    ("files", "templates"),
    [
        ({}, [""]),
        ({"tokenizer_config.json": json.dumps({"chat_template": "a"}).encode()}, ["a"]),
        ({"tokenizer_config.json": json.dumps({"chat_template": "a"}).encode(), "chat_template.jinja": b"b"}, ["b"]),
        (
            {"tokenizer_config.json": json.dumps({"chat_template": [{"name": "c", "template": "d"}]}).encode()},
            ["d"],
        ),
        ({"chat_template.jinja": b"b", "additional_chat_templates/rag.jinja": b"e"}, ["b", "e"]),
    ],
    ids=["none", "settings", "a file before settings", "named in settings", "named files"],
)
def test_templates_come_from_all_places(files: dict[str, bytes], templates: list[str]) -> None:
    """Files come before settings."""
    assert list(templates_of(settings_of(files)["chat_template"])) == templates


def test_a_config_of_many_megabytes_is_not_parsed() -> None:
    """It would take far more memory."""
    files = {"tokenizer_config.json": b" " * (8 * 2**20 + 1)}
    with pytest.raises(InvalidRequest, match=r"tokenizer_config\.json has 8,388,609 bytes: at most 8,388,608"):
        settings_of(files)


@pytest.mark.parametrize("name", ["tokenizer_config.json", "special_tokens_map.json"])
def test_a_config_of_a_million_values_is_not_parsed(name: str) -> None:
    """Nothing else would run meanwhile."""
    files = {name: b'{"a": [' + b"[]," * 2**19 + b"[]]}"}
    with pytest.raises(InvalidRequest, match=f"{name} has too many values"):
        settings_of(files)
