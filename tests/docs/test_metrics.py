"""docs/reference/metrics.md and the exported metrics agree."""

import re
from pathlib import Path

from prometheus_client.core import Metric

from tests.workers import accept
from tokenwire.coordinator.fleet.admission.queue import AdmissionQueue
from tokenwire.coordinator.fleet.admission.settings import AdmissionSettings
from tokenwire.coordinator.fleet.failover.settings import FailoverStats
from tokenwire.coordinator.fleet.pool import WorkerPool
from tokenwire.coordinator.observability.metrics.fleet import FleetCollector
from tokenwire.coordinator.observability.metrics.metrics import Metrics

_DOCUMENT = Path(__file__).parents[2] / "docs" / "reference" / "metrics.md"
_ROW = re.compile(r"^\| `(tokenwire_\w+)` \| (\w+) \|", re.MULTILINE)


def _families() -> list[Metric]:
    pool = WorkerPool("coordinator", accept)
    metrics = Metrics(FleetCollector(pool, AdmissionQueue(pool, AdmissionSettings()), FailoverStats()))
    return list(metrics.registry.collect())


def test_the_table_has_exactly_the_exported_metrics() -> None:
    """With their names and types."""
    documented = dict(_ROW.findall(_DOCUMENT.read_text()))
    existing = {
        family.name + ("_total" if family.type == "counter" else ""): family.type
        for family in _families()
        if family.name.startswith("tokenwire_")
    }
    assert documented == existing


def test_process_metrics_are_documented() -> None:
    """Dashboards may use them."""
    text = _DOCUMENT.read_text()
    process = [family for family in _families() if family.name.startswith("process_")]
    assert process
    assert all(f"`{family.name}" in text for family in process)
