"""The generated pages by name."""

from collections.abc import Callable, Mapping
from pathlib import Path

from scripts.reference import chart, errors, http, metrics, protocol, trajectories

ROOT = Path(__file__).parents[2]

PAGES: Mapping[str, Callable[[], str]] = {
    "deploy/k8s/tokenwire/README.md": chart.page,
    "docs/reference/errors.md": errors.page,
    "docs/reference/http.md": http.page,
    "docs/reference/metrics.md": metrics.page,
    "docs/reference/protocol.md": protocol.page,
    "docs/reference/trajectories.md": trajectories.page,
}
