"""Metrics of requests, counted at their end."""

import pytest
from prometheus_client import CollectorRegistry

from tokenwire.coordinator.observability.metrics.request_metrics import RequestMetrics
from tokenwire.coordinator.observability.record import RequestRecord
from tokenwire.coordinator.types import Finish


def _counted(record: RequestRecord) -> CollectorRegistry:
    registry = CollectorRegistry()
    metrics = RequestMetrics(registry, lambda: 3)
    metrics.on_end(record)
    return registry


def _generated() -> RequestRecord:
    return RequestRecord(
        method="POST",
        began_at=10.0,
        ended_at=14.0,
        route="/v1/chat/completions",
        status=200,
        request_id="chatcmpl-1",
        model="digits",
        choices=2,
        prompt_tokens=100,
        cached_tokens=64,
        reused_tokens=80,
        completion_tokens=22,
        submitted_at=10.5,
        placed_at=10.75,
        first_token_at=11.0,
        last_token_at=13.0,
        finishes=[Finish("stop", "###"), Finish("length")],
    )


def test_a_reply_is_counted_with_its_tokens_and_times() -> None:
    """Each time is between its two events; the time per token is that of one choice."""
    registry = _counted(_generated())

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(f"tokenwire_{name}", {"model": "digits", **labels})

    route = {"route": "/v1/chat/completions", "code": "200", "outcome": "ok"}
    assert value("requests_total", **route) == 1
    assert value("request_duration_seconds_sum") == 4.0
    assert value("time_to_first_token_seconds_sum") == 1.0
    assert value("time_per_output_token_seconds_sum") == pytest.approx(0.2)
    assert value("queue_time_seconds_sum") == 0.25
    assert [value(f"{name}_total") for name in ("prompt_tokens", "prompt_tokens_cached", "prompt_tokens_reused")] == [
        100,
        64,
        80,
    ]
    assert value("completion_tokens_total") == 22
    assert value("sequences_finished_total", reason="stop_string") == 1
    assert value("sequences_finished_total", reason="length") == 1
    assert registry.get_sample_value("tokenwire_requests_in_flight") == 3


def test_unfinished_choices_are_counted_by_the_outcome() -> None:
    """The client disconnected, so the rest was aborted."""
    record = _generated()
    record.client, record.finishes = "client_disconnected", [Finish("length")]
    registry = _counted(record)
    labels = {"model": "digits", "reason": "client_disconnected"}
    assert registry.get_sample_value("tokenwire_sequences_finished_total", labels) == 1


def test_an_unplaced_request_has_no_times_and_no_tokens() -> None:
    """Rejections are fast and would distort latencies."""
    record = _generated()
    record.status, record.placed_at, record.first_token_at, record.finishes = 429, None, None, ()
    registry = _counted(record)
    labels = {"route": "/v1/chat/completions", "model": "digits", "code": "429", "outcome": "rejected"}
    assert registry.get_sample_value("tokenwire_requests_total", labels) == 1
    assert registry.get_sample_value("tokenwire_request_duration_seconds_count", {"model": "digits"}) is None
    assert registry.get_sample_value("tokenwire_prompt_tokens_total", {"model": "digits"}) is None


def test_requests_without_generation_are_only_counted() -> None:
    """No times, no tokens."""
    registry = _counted(RequestRecord(route="/health", status=200))
    labels = {"route": "/health", "model": "", "code": "200", "outcome": "ok"}
    assert registry.get_sample_value("tokenwire_requests_total", labels) == 1
    assert registry.get_sample_value("tokenwire_request_duration_seconds_count", {"model": ""}) is None
