"""Alerts and dashboard by themselves: they can be read, they fire when they should, and somebody says what to do."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.monitoring.files import DASHBOARD, ROOT, RULES, alerts, queries

RULES_TEST = Path(__file__).parent / "rules_test.yaml"
PROMTOOL = shutil.which("promtool")
needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="needs promtool: apt-get install prometheus")


def promtool(*arguments: str | Path) -> None:
    """Run it, and see that it is content."""
    answer = subprocess.run(["promtool", *arguments], capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stdout + answer.stderr


@needs_promtool
def test_alerts_fire_when_they_should() -> None:
    """By Prometheus' own tool: each in its own trouble, none in a healthy fleet."""
    promtool("check", "rules", RULES)
    promtool("test", "rules", RULES_TEST)


def test_every_alert_is_tested_and_explained() -> None:
    """It is tried where it fires and where it does not, and the documentation says what to do."""
    tests = RULES_TEST.read_text()
    runbook = (ROOT / "docs" / "guides" / "alerts.md").read_text()
    assert len(alerts()) == len(set(alerts()))
    for alert in alerts():
        assert re.search(rf"alertname: {alert}}}", tests), f"{alert} is not seen to be quiet"
        assert re.search(rf"alertname: {alert}\n +exp_alerts:", tests), f"{alert} is not seen to fire"
    assert re.findall(r"^## (Tokenwire\w+)$", runbook, re.MULTILINE) == alerts()


@needs_promtool
def test_queries_of_the_dashboard_can_be_parsed(tmp_path: Path) -> None:
    """Prometheus understands each."""
    rules = [{"record": f"query_{number}", "expr": query} for number, query in enumerate(queries())]
    (file := tmp_path / "queries.yaml").write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))

    promtool("check", "rules", file)


def test_the_dashboard_is_what_the_script_prints() -> None:
    """Who changes it changes scripts/dashboard.py."""
    printed = subprocess.run([sys.executable, ROOT / "scripts" / "dashboard.py"], capture_output=True, check=True)

    assert printed.stdout == DASHBOARD.read_bytes()
