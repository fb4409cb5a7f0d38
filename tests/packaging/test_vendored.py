"""Files of other projects in the tree are those that they publish."""

import re
from pathlib import Path

import pytest

from tests.npm import fetch_npm
from tests.packaging.conftest import ROOT

FOLDER = ROOT / "coordinator" / "api" / "status_page" / "vendor" / "uplot"


@pytest.mark.npm
def test_uplot_is_as_published(tmp_path: Path) -> None:
    """Byte for byte, with its license, in the version that `make vendor` fetches and the documentation names."""
    version = re.findall(r"VERSION=(.*)", (ROOT / "scripts" / "vendor-uplot.sh").read_text())[0]
    fetch_npm(f"uplot@{version}", tmp_path)
    package = tmp_path / "package"

    for path in FOLDER.iterdir():
        published = package / path.name if path.name == "LICENSE" else package / "dist" / path.name
        assert path.read_bytes() == published.read_bytes(), path.name
    assert f"uPlot {version}" in (ROOT / "docs" / "guides" / "status-page.md").read_text()
