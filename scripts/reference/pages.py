"""The generated pages by name."""

from collections.abc import Callable, Mapping
from pathlib import Path

from scripts.reference import errors, http, metrics, protocol

FOLDER = Path(__file__).parents[2] / "docs" / "reference"

PAGES: Mapping[str, Callable[[], str]] = {
    "errors.md": errors.page,
    "http.md": http.page,
    "metrics.md": metrics.page,
    "protocol.md": protocol.page,
}
