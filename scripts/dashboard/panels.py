"""The panels of the Grafana dashboard and their queries, in their order on the page.

One file, since it is read from top to bottom like the page.
"""

from dataclasses import dataclass, field
from typing import Literal

_SELECTED = 'namespace=~"$namespace", job=~"$job"'
_MODEL = f'{_SELECTED}, model=~"$model"'
_WORKER = f'{_MODEL}, worker=~"$worker"'
_ENGINE = f'{_SELECTED}, worker=~"$worker"'
_SCRAPED = 'namespace=~"$namespace"'
"""What workers report by themselves; their job is another one."""
_TENANT = f'{_SELECTED}, tenant=~"$tenant"'
VARIABLES = {
    "namespace": "label_values(tokenwire_build_info, namespace)",
    "job": 'label_values(tokenwire_build_info{namespace=~"$namespace"}, job)',
    "model": f"label_values(tokenwire_worker_state{{{_SELECTED}}}, model)",
    "worker": f"label_values(tokenwire_worker_state{{{_MODEL}}}, worker)",
    "tenant": f"label_values(tokenwire_tenant_requests_total{{{_SELECTED}}}, tenant)",
}
"""What the page can be narrowed to, and the query for the values of each."""
TOKENS_PER_S = "si:tok/s"


@dataclass(frozen=True)
class Panel:
    """A panel: queries by their legend."""

    title: str
    what: str
    unit: str
    queries: dict[str, str]
    width: int = 8
    stacked: bool = False
    kind: Literal["timeseries", "stat", "heatmap"] = "timeseries"
    colours: dict[float, str] = field(default_factory=dict)
    """The colour of a single figure from a value on."""

    @property
    def height(self) -> int:
        """The height in the units of Grafana's grid."""
        return 4 if self.kind == "stat" else 8


def figure(title: str, what: str, unit: str, query: str, colours: dict[float, str] | None = None) -> Panel:
    """Return a panel with one figure."""
    return Panel(title, what, unit, {"": query}, width=6, kind="stat", colours=colours or {})


def heatmap(title: str, metric: str) -> Panel:
    """Return a heatmap of the buckets of a histogram."""
    buckets = f"sum by (le) (increase({metric}_bucket{{{_MODEL}}}[$__rate_interval]))"
    return Panel(title, "Observations by bucket.", "s", {"{{le}}": buckets}, kind="heatmap")


def rate(metric: str, *by: str, where: str = _MODEL) -> str:
    """Return the summed rate of a counter."""
    grouping = f" by ({', '.join(by)}) " if by else ""
    return f"sum{grouping}(rate({metric}{{{where}}}[$__rate_interval]))"


def quantiles(metric: str) -> dict[str, str]:
    """Return the usual quantiles of a histogram, by model."""
    rates = rate(f"{metric}_bucket", "model", "le")
    return {f"{{{{model}}}} p{q}": f"histogram_quantile(0.{q}, {rates})" for q in (50, 95, 99)}


def of_workers(metric: str) -> dict[str, str]:
    """Return a gauge of workers, which all coordinators export."""
    return {"{{worker}}": f"max by (worker) ({metric}{{{_WORKER}}})"}


def of_coordinators(metric: str) -> dict[str, str]:
    """Return a gauge of each coordinator."""
    return {"{{instance}}": f"sum by (instance) ({metric}{{{_SELECTED}}})"}


def _by_instance(metric: str) -> str:
    return f"sum by (instance) ({metric}{{{_SCRAPED}}})"


def of_engines(expression: str) -> str:
    """Return the sum of a worker's engines, which all coordinators relay."""
    return f"sum by (worker) (max by (worker, engine) ({expression}))"


_RATIO = rate("tokenwire_prompt_tokens_cached_total", "model") + " / " + rate("tokenwire_prompt_tokens_total", "model")
_HITS = rate("vllm:prefix_cache_hits_total", "worker", where=_ENGINE)
_QUERIES = rate("vllm:prefix_cache_queries_total", "worker", where=_ENGINE)

_REUSED = rate("tokenwire_worker_media_reused_total", "instance", where=_SCRAPED)
_EXPANDED = rate("tokenwire_worker_media_expanded_total", "instance", where=_SCRAPED)

_FAILED = rate("tokenwire_requests_total", where=f'{_MODEL}, model!="", outcome=~"error|unavailable|deadline|rejected"')
_FINISHED = rate("tokenwire_requests_total", where=f'{_MODEL}, model!=""')

ROWS: dict[str, list[Panel]] = {
    "Now": [
        figure(
            "Ready workers",
            "Workers that are ready for any coordinator.",
            "none",
            f'sum(max by (model, worker) (tokenwire_worker_state{{{_WORKER}, state="ready"}}))',
            {0: "red", 1: "green"},
        ),
        figure(
            "Tokens per second",
            "Sent to clients; counted when a request ends.",
            TOKENS_PER_S,
            rate("tokenwire_completion_tokens_total"),
        ),
        figure(
            "Error rate",
            "Fraction of the requests that were rejected, timed out, found no worker, or ended with a server error.",
            "percentunit",
            f"({_FAILED} or 0 * {_FINISHED}) / ({_FINISHED} > 0)",
            {0: "green", 0.02: "red"},
        ),
        figure(
            "Time to first token, p95",
            "Including time in the queue.",
            "s",
            f"histogram_quantile(0.95, {rate('tokenwire_time_to_first_token_seconds_bucket', 'le')})",
            {0: "green", 10: "red"},
        ),
    ],
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
            TOKENS_PER_S,
            {
                "{{model}} completion": rate("tokenwire_completion_tokens_total", "model"),
                "{{model}} prompt": rate("tokenwire_prompt_tokens_total", "model"),
            },
        ),
        Panel(
            "Finished sequences",
            "By finish reason.",
            "si:seq/s",
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
        heatmap("Time to first token, distribution", "tokenwire_time_to_first_token_seconds"),
        heatmap("Time between tokens, distribution", "tokenwire_inter_token_latency_seconds"),
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
    "Tenants (with API keys)": [
        Panel(
            "Requests by tenant",
            "Finished requests with a key of the tenant.",
            "reqps",
            {"{{tenant}}": rate("tokenwire_tenant_requests_total", "tenant", where=_TENANT)},
            stacked=True,
        ),
        Panel(
            "Tokens by tenant",
            "Completion and prompt tokens.",
            TOKENS_PER_S,
            {
                "{{tenant}} completion": rate("tokenwire_tenant_completion_tokens_total", "tenant", where=_TENANT),
                "{{tenant}} prompt": rate("tokenwire_tenant_prompt_tokens_total", "tenant", where=_TENANT),
            },
        ),
        Panel(
            "Rejected requests by tenant",
            "Over the tenant's limits, or the queue's.",
            "reqps",
            {"{{tenant}}": rate("tokenwire_tenant_requests_total", "tenant", where=f'{_TENANT}, outcome="rejected"')},
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
        Panel("Running", "Sequences running on a worker.", "short", of_workers("tokenwire_worker_sequences_running")),
        Panel(
            "Waiting", "Sequences in a worker's own queue.", "short", of_workers("tokenwire_worker_sequences_waiting")
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
            "si:seq/s",
            {"{{result}}": rate("tokenwire_failover_sequences_total", "result", where=_SELECTED)},
        ),
    ],
    "Saved and wasted work": [
        Panel("Prefix cache hit rate", "Fraction of the prompt tokens.", "percentunit", {"{{model}}": _RATIO}, 12),
        Panel(
            "Overshoot tokens",
            "Received for sequences that had already ended or been aborted.",
            TOKENS_PER_S,
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
            TOKENS_PER_S,
            {"{{worker}}": of_engines(f"rate(vllm:generation_tokens_total{{{_ENGINE}}}[$__rate_interval])")},
        ),
        Panel(
            "Prompt tokens",
            "For all coordinators.",
            TOKENS_PER_S,
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
            "si:seq/s",
            {"{{worker}}": of_engines(f"rate(vllm:num_preemptions_total{{{_ENGINE}}}[$__rate_interval])")},
        ),
    ],
    "Pictures (their processing: scraped from workers)": [
        Panel(
            "Loaded pictures",
            "By where they came from, and outcome: refused is the client's fault, failed is not.",
            "si:pictures/s",
            {"{{source}} {{outcome}}": rate("tokenwire_media_loads_total", "source", "outcome", where=_SELECTED)},
            stacked=True,
        ),
        Panel(
            "Bytes",
            "Fetched by coordinators, and put by them to workers.",
            "Bps",
            {
                "fetched": rate("tokenwire_media_fetched_bytes_total", where=_SELECTED),
                "put": rate("tokenwire_worker_media_received_bytes_total", where=_SCRAPED),
            },
        ),
        Panel(
            "Memory",
            "Of pictures that are kept, and on workers of what was made of them.",
            "bytes",
            {
                **of_coordinators("tokenwire_media_memory_bytes"),
                "{{instance}} put": _by_instance("tokenwire_worker_media_memory_bytes"),
                "{{instance}} processed": _by_instance("tokenwire_worker_media_processed_memory_bytes"),
            },
        ),
        Panel(
            "Busy processes",
            "That process pictures; at most --media-processes of each worker.",
            "short",
            {"{{instance}}": rate("tokenwire_worker_media_processing_seconds_total", "instance", where=_SCRAPED)},
        ),
        Panel(
            "Waiting pictures",
            "For a process, or in one.",
            "short",
            {"{{instance}}": _by_instance("tokenwire_worker_media_waiting")},
        ),
        Panel(
            "Reused pictures",
            "Fraction of the pictures of prompts that had been processed before.",
            "percentunit",
            {"{{instance}}": f"{_REUSED} / {_EXPANDED}"},
        ),
    ],
    "Trajectories (with --enable-trajectories)": [
        Panel(
            "Dropped sessions and events",
            "Sessions for which there was no room, and turns, rewards and messages that were not stored.",
            "short",
            {
                "sessions": rate("tokenwire_trajectory_sessions_dropped_total", where=_SELECTED),
                "events": rate("tokenwire_trajectory_events_dropped_total", where=_SELECTED),
            },
        ),
    ],
    "Coordinators": [
        Panel(
            "Event loop lag",
            "Delay of a timer. A blocked loop delays every stream.",
            "s",
            {
                "{{instance}} p99": "histogram_quantile(0.99, "
                + rate("tokenwire_event_loop_lag_seconds_bucket", "instance", "le", where=_SELECTED)
                + ")"
            },
        ),
        Panel(
            "CPU",
            "Seconds per second.",
            "short",
            {"{{instance}}": rate("process_cpu_seconds_total", "instance", where=_SELECTED)},
        ),
        Panel("Memory", "Resident set size.", "bytes", of_coordinators("process_resident_memory_bytes")),
        Panel("Requests in flight", "", "short", of_coordinators("tokenwire_requests_in_flight")),
        Panel("File descriptors", "", "short", of_coordinators("process_open_fds")),
        Panel(
            "Versions",
            "Coordinators by version.",
            "short",
            {"{{version}}": f"count by (version) (tokenwire_build_info{{{_SELECTED}}})"},
            stacked=True,
        ),
    ],
}
