"""The chart's files for Prometheus and Grafana, as tests read them."""

import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
RULES = ROOT / "deploy" / "k8s" / "tokenwire" / "files" / "rules.yaml"
DASHBOARD = ROOT / "deploy" / "k8s" / "tokenwire" / "files" / "dashboard.json"
_VARIABLES = re.compile(r"\$(namespace|job|model|worker|tenant)\b")
METRIC = re.compile(r"(?<![\w:])(?:tokenwire_|process_|vllm:)[a-z_]+")


def alerts() -> list[str]:
    """Return the names of all alerts."""
    return re.findall(r"- alert: (\w+)", RULES.read_text())


def runbook_urls() -> dict[str, str]:
    """Return the runbook of each alert."""
    return dict(re.findall(r"- alert: (\w+)\n(?: {8}.*\n)*? +runbook_url: (\S+)$", RULES.read_text(), re.MULTILINE))


def dashboard() -> dict[str, Any]:
    """Return the dashboard."""
    content: dict[str, Any] = json.loads(DASHBOARD.read_text())
    return content


def panels() -> list[dict[str, Any]]:
    """Return the panels of the dashboard, without the headings of its rows."""
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


def queries() -> list[str]:
    """Return every query of the dashboard, with values for its variables."""
    expressions = [target["expr"] for panel in panels() for target in panel["targets"]]
    return [_VARIABLES.sub(".*", each.replace("$__rate_interval", "5m")) for each in expressions]


def metrics() -> set[str]:
    """Return every metric that a rule or a query names; recorded ones are not metrics of ours."""
    rules = re.sub(r"^ *(summary|description|runbook_url|#).*", "", RULES.read_text(), flags=re.MULTILINE)
    return {name for text in (rules, *queries()) for name in METRIC.findall(text)}
