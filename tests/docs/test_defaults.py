"""Defaults of options that prose names, as in "`--max-queue-mb` (256)", are those that are declared."""

import re
from pathlib import Path

import pytest

from tests.docs.commands import PAGES, ROOT
from tokenwire.cli.coordinator import COORDINATOR_OPTIONS
from tokenwire.cli.worker import WORKER_OPTIONS

FILES = [*PAGES, ROOT / "deploy" / "k8s" / "tokenwire" / "values.yaml"]
DEFAULT = re.compile(r"`(--[a-z][a-z-]*)`(?:\s+seconds)?\s+\((\d+(?:\.\d+)?)\b")


def wrong_defaults(text: str) -> list[str]:
    """Return the defaults in a text that are not the declared ones."""
    options = {**COORDINATOR_OPTIONS, **WORKER_OPTIONS}
    return [f"{name} ({value})" for name, value in DEFAULT.findall(text) if options[name].default != float(value)]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_defaults_in_prose_are_as_declared(path: Path) -> None:
    """In number; units stand in the option's help."""
    assert wrong_defaults(path.read_text()) == []


def test_a_wrong_default_is_found() -> None:
    """Also in a unit, and where the line breaks before it."""
    assert wrong_defaults("`--model-linger` (300 s), `--history-ttl` seconds\n(3600), `--max-queue-mb` (256)") == []
    assert wrong_defaults("`--model-linger`\n(60 s) or `--max-body-mb` (33)") == [
        "--model-linger (60)",
        "--max-body-mb (33)",
    ]
