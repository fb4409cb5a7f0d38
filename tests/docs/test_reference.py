"""The generated pages of the reference are current."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import yaml

from scripts.reference.metrics import core_with_keys, families_of
from scripts.reference.pages import PAGES, ROOT

CHART = ROOT / "deploy" / "k8s" / "tokenwire"


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_current(name: str) -> None:
    """After a change of a route, a metric, an error, the protocol or a value of the chart: `make reference`."""
    assert (ROOT / name).read_text() == PAGES[name]()


def test_a_metric_counts_what_its_name_says() -> None:
    """Sequences or requests: a request has several sequences."""
    families = list(families_of(core_with_keys().observers.metrics.registry))

    for counted in ("sequences", "requests"):
        named = [each for each in families if f"_{counted}_" in f"{each.name}_"]
        assert named
        for each in named:
            assert counted in each.documentation.partition(".")[0].lower(), each.name


def test_the_charts_readme_lists_every_value() -> None:
    """With the default that helm reads from values.yaml."""
    page = (CHART / "README.md").read_text()

    for path, default in _leaves(yaml.safe_load((CHART / "values.yaml").read_text())):
        (row,) = [line for line in page.splitlines() if line.startswith(f"| `{path}` |")]
        shown = row.split(" | ")[2].strip("`")
        assert yaml.safe_load(shown) == default


def _leaves(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the path and value of what the page shows in one row: maps in braces are one value."""
    page = (CHART / "README.md").read_text()
    for key, value in values.items():
        path = f"{prefix}{key}"
        if isinstance(value, dict) and value and f"\n| `{path}` |" not in page:
            yield from _leaves(value, f"{path}.")
        else:
            yield path, value
