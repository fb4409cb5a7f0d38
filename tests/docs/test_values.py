"""Values of the chart in the guides are accepted by its schema."""

import json
import re
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml

from tests.docs.commands import ROOT

CHART = ROOT / "deploy" / "k8s" / "tokenwire"
BLOCK = re.compile(r"^```yaml\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks() -> list[Any]:
    """Return the YAML blocks of the guides, each under its page's name."""
    pages = sorted(Path(ROOT, "docs", "guides").glob("*.md"))
    return [pytest.param(text, id=page.stem) for page in pages for text in BLOCK.findall(page.read_text())]


@pytest.mark.parametrize("text", blocks())
def test_values_are_accepted(text: str) -> None:
    """Over the chart's defaults, as helm merges them."""
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    merged = _merged_values(values, yaml.safe_load(text))

    jsonschema_rs.validate(json.loads((CHART / "values.schema.json").read_text()), merged)


def _merged_values(below: Any, above: Any) -> Any:
    if not isinstance(below, dict) or not isinstance(above, dict):
        return above
    return {
        key: _merged_values(below.get(key), above[key]) if key in above else below[key] for key in {**below, **above}
    }
