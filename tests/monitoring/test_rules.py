"""Alerts and dashboard by themselves: they can be read, they fire when they should, and have a runbook."""

import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from scripts.reference.metrics import core_with_keys, families_of, media_families, row_of
from tests.monitoring.files import DASHBOARD, METRIC, ROOT, RULES, alerts, metrics, panels, queries, runbook_urls

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


@needs_promtool
def test_prometheus_accepts_the_scrape_configuration() -> None:
    """With the rules that it loads."""
    promtool("check", "config", ROOT / "deploy" / "prometheus.yml")


def test_the_scrape_configuration_keeps_no_series_twice() -> None:
    """Of vLLM's families, workers' own series are histograms, which coordinators do not relay."""
    (worker,) = [
        job
        for job in yaml.safe_load((ROOT / "deploy" / "prometheus.yml").read_text())["scrape_configs"]
        if job["job_name"] == "tokenwire-worker"
    ]
    (relabelling,) = worker["metric_relabel_configs"]
    assert relabelling["action"] == "keep"

    def is_kept(name: str) -> bool:
        return re.fullmatch(relabelling["regex"], name) is not None

    assert is_kept("vllm:time_to_first_token_seconds_bucket")
    assert is_kept("tokenwire_worker_sessions")
    assert not is_kept("vllm:num_requests_running")
    assert not is_kept("vllm:generation_tokens_total")


def test_every_alert_is_tested_and_explained() -> None:
    """It is tried where it fires and where it does not, and the documentation has a runbook."""
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
    """It is changed in scripts/dashboard."""
    program = [sys.executable, "-m", "scripts.dashboard"]
    printed = subprocess.run(program, cwd=ROOT, capture_output=True, check=True)

    assert printed.stdout == DASHBOARD.read_bytes()


def test_every_alert_links_to_its_section_of_the_guide() -> None:
    """`runbook_url` is the page of the project's repository, with the alert's heading as anchor."""
    repository = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]["Homepage"]
    page = f"{repository}/blob/main/docs/guides/alerts.md"

    assert runbook_urls() == {alert: f"{page}#{alert.lower()}" for alert in alerts()}


def test_panels_have_units_and_do_not_overlap() -> None:
    """Each panel has a unit of Grafana's, and a place of its own within the 24 columns."""
    taken: set[tuple[int, int]] = set()
    for panel in panels():
        unit = panel["fieldConfig"]["defaults"]["unit"]
        assert unit in {"none", "short", "s", "bytes", "Bps", "percentunit", "reqps"} or unit.startswith("si:"), panel[
            "title"
        ]
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert taken.isdisjoint(cells), panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= cells


def test_the_first_row_has_single_figures_and_latencies_have_heatmaps() -> None:
    """The health of a fleet is seen at a glance, and the distribution behind each quantile."""
    first = [panel["type"] for panel in panels()][:4]
    heatmaps = [panel for panel in panels() if panel["type"] == "heatmap"]

    assert first == ["stat"] * 4
    assert len(heatmaps) == 2
    for panel in heatmaps:
        (target,) = panel["targets"]
        assert target["format"] == "heatmap"
        assert "sum by (le)" in target["expr"]


def test_tenants_have_a_row() -> None:
    """With the requests, tokens and rejections of each."""
    row = [panel for panel in panels() if "tenant" in panel["title"]]
    shown = "".join(target["expr"] for panel in row for target in panel["targets"])

    assert len(row) == 3
    assert 'outcome="rejected"' in shown
    for name in ("requests", "prompt_tokens", "completion_tokens"):
        assert f'sum by (tenant) (rate(tokenwire_tenant_{name}_total{{namespace=~"$namespace"' in shown


def test_every_metric_and_label_of_a_query_is_registered() -> None:
    """Alerts and panels use no metric, and group by no label, that no registry has."""
    core = core_with_keys()
    families = [*families_of(core.observers.metrics.registry), *media_families()]
    labels = {row[0].strip("`"): row[2] for row in map(row_of, families)}
    own = {name for name in metrics() if not name.startswith("vllm:")}

    assert {re.sub(r"_(bucket|sum|count)$", "", name) for name in own} <= labels.keys()
    for query in queries():
        names = [re.sub(r"_(bucket|sum|count)$", "", name) for name in METRIC.findall(query)]
        if not any(name.startswith("vllm:") for name in names):
            grouped = {label for group in re.findall(r"by \(([^)]*)\)", query) for label in group.split(", ")}
            known = {label for name in names for label in re.findall(r"`(\w+)`", labels[name])}
            assert grouped <= known | {"le", "instance"}, query
