"""Prints the Grafana dashboard: python -m scripts.dashboard > deploy/k8s/tokenwire/files/dashboard.json."""

import json
import sys
from typing import Any

from scripts.dashboard.panels import ROWS, VARIABLES, Panel

_COLUMNS = 24
_DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}


def dashboard() -> dict[str, Any]:
    """Return the dashboard in Grafana's import format."""
    return {
        "title": "tokenwire",
        "uid": "tokenwire",
        "tags": ["tokenwire", "vllm"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": _variables()},
        "panels": _panels(),
    }


def _variables() -> list[dict[str, Any]]:
    source = {"name": "datasource", "type": "datasource", "query": "prometheus"}
    common = {"type": "query", "datasource": _DATASOURCE, "refresh": 2, "includeAll": True, "multi": True, "sort": 1}
    variables = [
        {"name": name, "query": query, **common, "current": {"text": "All", "value": "$__all"}}
        for name, query in VARIABLES.items()
    ]
    for variable in variables:
        if variable["name"] != "job":  # All jobs are those of coordinators; of the rest, there may be none.
            variable["allValue"] = ".*"
    return [source, *variables]


def _panels() -> list[dict[str, Any]]:
    panels: list[dict[str, Any]] = []
    top = 0
    for title, charts in ROWS.items():
        panels.append({"type": "row", "title": title, "gridPos": {"x": 0, "y": top, "w": _COLUMNS, "h": 1}})
        top, left = top + 1, 0
        for chart in charts:
            if left + chart.width > _COLUMNS:
                top, left = top + chart.height, 0
            panels.append(_panel(chart, {"x": left, "y": top, "w": chart.width, "h": chart.height}))
            left += chart.width
        top += charts[-1].height
    return [{"id": number, **panel} for number, panel in enumerate(panels, 1)]


def _panel(chart: Panel, position: dict[str, int]) -> dict[str, Any]:
    kind = {"timeseries": _time_series, "stat": _stat, "heatmap": _heatmap}[chart.kind]
    return {
        "type": chart.kind,
        "title": chart.title,
        "description": chart.what,
        "datasource": _DATASOURCE,
        "gridPos": position,
        **kind(chart),
        "targets": [
            {
                "refId": chr(ord("A") + index),
                "datasource": _DATASOURCE,
                "expr": query,
                "legendFormat": legend,
                **({"format": "heatmap"} if chart.kind == "heatmap" else {}),
            }
            for index, (legend, query) in enumerate(chart.queries.items())
        ],
    }


def _time_series(chart: Panel) -> dict[str, Any]:
    custom: dict[str, Any] = {"fillOpacity": 10, "showPoints": "never"}
    if chart.stacked:
        custom = {**custom, "fillOpacity": 40, "stacking": {"mode": "normal"}}
    return {
        "fieldConfig": {"defaults": {"unit": chart.unit, "min": 0, "custom": custom}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
    }


def _stat(chart: Panel) -> dict[str, Any]:
    values = chart.colours.items() or {0.0: "text"}.items()
    # The first colour has no lower bound.
    steps = [{"color": colour, "value": value if number else None} for number, (value, colour) in enumerate(values)]
    defaults = {"unit": chart.unit, "noValue": "–", "thresholds": {"mode": "absolute", "steps": steps}}
    return {
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": {
            "reduceOptions": {"calcs": ["lastNotNull"]},
            "colorMode": "value",
            "graphMode": "area",
            "textMode": "value",
        },
    }


def _heatmap(chart: Panel) -> dict[str, Any]:
    return {
        "fieldConfig": {"defaults": {"unit": chart.unit}, "overrides": []},
        "options": {
            "calculate": False,
            "cellGap": 1,
            "cellValues": {"unit": "short"},
            "color": {"mode": "scheme", "scheme": "Spectral", "steps": 64},
            "filterValues": {"le": 1e-9},
            "legend": {"show": True},
            "rowsFrame": {"layout": "auto"},
            "tooltip": {"mode": "single", "yHistogram": True},
            "yAxis": {"axisPlacement": "left", "unit": chart.unit},
        },
    }


if __name__ == "__main__":
    json.dump(dashboard(), sys.stdout, indent=1, ensure_ascii=False)
    print()
