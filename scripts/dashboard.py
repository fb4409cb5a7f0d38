"""Prints the Grafana dashboard: python scripts/dashboard.py > deploy/k8s/tokenwire/files/dashboard.json.

One file of over 300 lines, because most of it is one table: the panels in their order on the page.
"""

import json
import sys
from dataclasses import dataclass
from typing import Any

_COLUMNS = 24
_HEIGHT = 8
_DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
_OURS = 'namespace=~"$namespace", job=~"$job"'
_MODEL = f'{_OURS}, model=~"$model"'
_WORKER = f'{_MODEL}, worker=~"$worker"'
_ENGINE = f'{_OURS}, worker=~"$worker"'


@dataclass(frozen=True)
class Panel:
    """A chart: queries by their legend."""

    title: str
    what: str
    unit: str
    queries: dict[str, str]
    width: int = 8
    stacked: bool = False


def rate(metric: str, *by: str, where: str = _MODEL) -> str:
    """Return the summed rate of a counter."""
    return f"sum by ({', '.join(by)}) (rate({metric}{{{where}}}[$__rate_interval]))"


def quantiles(metric: str) -> dict[str, str]:
    """Return the usual quantiles of a histogram, by model."""
    rates = rate(f"{metric}_bucket", "model", "le")
    return {f"{{{{model}}}} p{q}": f"histogram_quantile(0.{q}, {rates})" for q in (50, 95, 99)}


def of_workers(metric: str) -> dict[str, str]:
    """Return a gauge of workers, which all coordinators export."""
    return {"{{worker}}": f"max by (worker) ({metric}{{{_WORKER}}})"}


def of_engines(expression: str) -> str:
    """Return the sum of a worker's engines, which all coordinators relay."""
    return f"sum by (worker) (max by (worker, engine) ({expression}))"


_RATIO = rate("tokenwire_prompt_tokens_cached_total", "model") + " / " + rate("tokenwire_prompt_tokens_total", "model")
_HITS = rate("vllm:prefix_cache_hits_total", "worker", where=_ENGINE)
_QUERIES = rate("vllm:prefix_cache_queries_total", "worker", where=_ENGINE)

ROWS: dict[str, list[Panel]] = {
    "Traffic": [
        Panel(
            "Requests",
            "Finished requests for tokens, by outcome.",
            "reqps",
            {
                "{{model}} {{outcome}}": rate(
                    "tokenwire_requests_total", "model", "outcome", where=f'{_MODEL}, model!=""'
                )
            },
            stacked=True,
        ),
        Panel(
            "Tokens",
            "Completion and prompt tokens.",
            "short",
            {
                "{{model}} completion": rate("tokenwire_completion_tokens_total", "model"),
                "{{model}} prompt": rate("tokenwire_prompt_tokens_total", "model"),
            },
        ),
        Panel(
            "Finished sequences",
            "By finish reason.",
            "short",
            {"{{reason}}": rate("tokenwire_sequences_finished_total", "reason")},
            stacked=True,
        ),
    ],
    "Latency": [
        Panel(
            "Time to first token",
            "Including time in the queue.",
            "s",
            quantiles("tokenwire_time_to_first_token_seconds"),
        ),
        Panel(
            "Time between tokens",
            "As received from the workers.",
            "s",
            quantiles("tokenwire_inter_token_latency_seconds"),
        ),
        Panel(
            "Request duration",
            "From the request to the end of its response.",
            "s",
            quantiles("tokenwire_request_duration_seconds"),
        ),
        Panel(
            "Time per output token",
            "Mean per request.",
            "s",
            quantiles("tokenwire_time_per_output_token_seconds"),
        ),
    ],
    "Queue": [
        Panel(
            "Queued requests",
            "Waiting for a worker with free capacity.",
            "short",
            {
                "{{model}} requests": f"sum by (model) (tokenwire_queue_requests{{{_MODEL}}})",
                "{{model}} sequences": f"sum by (model) (tokenwire_queue_sequences{{{_MODEL}}})",
            },
        ),
        Panel("Queue time", "Until a worker got the request.", "s", quantiles("tokenwire_queue_time_seconds")),
        Panel(
            "Rejected requests",
            "full: the queue was full; timeout: no worker in time; no_worker: none at all.",
            "reqps",
            {"{{model}} {{reason}}": rate("tokenwire_queue_rejected_total", "model", "reason")},
            stacked=True,
        ),
    ],
    "Workers": [
        Panel(
            "States",
            "Workers by state, as reported by coordinators.",
            "short",
            {"{{state}}": f"sum by (state) (max by (worker, state) (tokenwire_worker_state{{{_WORKER}}}))"},
            stacked=True,
        ),
        Panel("Running", "Sequences running on a worker.", "short", of_workers("tokenwire_worker_requests_running")),
        Panel(
            "Waiting", "Sequences in a worker's own queue.", "short", of_workers("tokenwire_worker_requests_waiting")
        ),
        Panel("KV cache", "Fraction in use.", "percentunit", of_workers("tokenwire_worker_kv_cache_usage_ratio")),
        Panel(
            "Open sequences",
            "Of all coordinators.",
            "short",
            {"{{worker}}": f"sum by (worker) (tokenwire_worker_open_slots{{{_WORKER}}})"},
        ),
        Panel(
            "Failovers",
            "Sequences that lost their worker; resumed and replayed ones continued on another.",
            "short",
            {"{{result}}": rate("tokenwire_failover_sequences_total", "result", where=_OURS)},
        ),
    ],
    "Saved and wasted work": [
        Panel("Prefix cache hit rate", "Fraction of the prompt tokens.", "percentunit", {"{{model}}": _RATIO}, 12),
        Panel(
            "Overshoot tokens",
            "Received for sequences that had already ended or been aborted.",
            "short",
            {"{{model}}": rate("tokenwire_overshoot_tokens_total", "model")},
            12,
        ),
    ],
    "Engines (reported by workers)": [
        Panel(
            "Running and waiting",
            "",
            "short",
            {
                "{{worker}} running": of_engines(f"vllm:num_requests_running{{{_ENGINE}}}"),
                "{{worker}} waiting": of_engines(f"vllm:num_requests_waiting{{{_ENGINE}}}"),
            },
        ),
        Panel(
            "Generated tokens",
            "For all coordinators.",
            "short",
            {"{{worker}}": of_engines(f"rate(vllm:generation_tokens_total{{{_ENGINE}}}[$__rate_interval])")},
        ),
        Panel(
            "Prompt tokens",
            "For all coordinators.",
            "short",
            {"{{worker}}": of_engines(f"rate(vllm:prompt_tokens_total{{{_ENGINE}}}[$__rate_interval])")},
        ),
        Panel(
            "KV cache", "", "percentunit", {"{{worker}}": f"max by (worker) (vllm:kv_cache_usage_perc{{{_ENGINE}}})"}
        ),
        Panel(
            "Prefix cache",
            "Hit rate of queried tokens.",
            "percentunit",
            {"{{worker}}": f"{_HITS} / {_QUERIES}"},
        ),
        Panel(
            "Preemptions",
            "Sequences preempted for lack of KV cache.",
            "short",
            {"{{worker}}": of_engines(f"rate(vllm:num_preemptions_total{{{_ENGINE}}}[$__rate_interval])")},
        ),
    ],
    "Coordinators": [
        Panel(
            "Event loop lag",
            "Delay of a timer. A blocked loop delays every stream.",
            "s",
            {
                "{{instance}} p99": "histogram_quantile(0.99, "
                + rate("tokenwire_event_loop_lag_seconds_bucket", "instance", "le", where=_OURS)
                + ")"
            },
        ),
        Panel(
            "CPU",
            "Seconds per second.",
            "short",
            {"{{instance}}": rate("process_cpu_seconds_total", "instance", where=_OURS)},
        ),
        Panel(
            "Memory",
            "Resident set size.",
            "bytes",
            {"{{instance}}": f"sum by (instance) (process_resident_memory_bytes{{{_OURS}}})"},
        ),
        Panel(
            "Requests in flight",
            "",
            "short",
            {"{{instance}}": f"sum by (instance) (tokenwire_requests_in_flight{{{_OURS}}})"},
        ),
        Panel("File descriptors", "", "short", {"{{instance}}": f"sum by (instance) (process_open_fds{{{_OURS}}})"}),
        Panel(
            "Versions",
            "Coordinators by version.",
            "short",
            {"{{version}}": f"count by (version) (tokenwire_build_info{{{_OURS}}})"},
            stacked=True,
        ),
    ],
}


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
    queries = {
        "namespace": "label_values(tokenwire_build_info, namespace)",
        "job": 'label_values(tokenwire_build_info{namespace=~"$namespace"}, job)',
        "model": f"label_values(tokenwire_worker_state{{{_OURS}}}, model)",
        "worker": f"label_values(tokenwire_worker_state{{{_MODEL}}}, worker)",
    }
    source = {"name": "datasource", "type": "datasource", "query": "prometheus"}
    common = {"type": "query", "datasource": _DATASOURCE, "refresh": 2, "includeAll": True, "multi": True, "sort": 1}
    variables = [
        {"name": name, "query": query, **common, "current": {"text": "All", "value": "$__all"}}
        for name, query in queries.items()
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
                top, left = top + _HEIGHT, 0
            panels.append(_panel(chart, {"x": left, "y": top, "w": chart.width, "h": _HEIGHT}))
            left += chart.width
        top += _HEIGHT
    return [{"id": number, **panel} for number, panel in enumerate(panels, 1)]


def _panel(chart: Panel, position: dict[str, int]) -> dict[str, Any]:
    custom: dict[str, Any] = {"fillOpacity": 10, "showPoints": "never"}
    if chart.stacked:
        custom = {**custom, "fillOpacity": 40, "stacking": {"mode": "normal"}}
    return {
        "type": "timeseries",
        "title": chart.title,
        "description": chart.what,
        "datasource": _DATASOURCE,
        "gridPos": position,
        "fieldConfig": {"defaults": {"unit": chart.unit, "min": 0, "custom": custom}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
        "targets": [
            {"refId": chr(ord("A") + index), "datasource": _DATASOURCE, "expr": query, "legendFormat": legend}
            for index, (legend, query) in enumerate(chart.queries.items())
        ],
    }


if __name__ == "__main__":
    json.dump(dashboard(), sys.stdout, indent=1)
    print()
