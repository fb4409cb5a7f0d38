"""Workers' own metrics, as relayed by a coordinator."""

import logging

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.coordinator.observability.metrics.test_worker_text import GOOD, HOSTILE, TYPICAL, worker_with_metrics
from tokenwire.coordinator.observability.metrics.relay import Relay, merged_texts


def relabelled(texts: dict[str, str]) -> str:
    """Return the metrics of several workers, merged."""
    return merged_texts(texts)[0].decode()


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
async def test_what_a_worker_must_not_send_is_left_out_and_logged(text: str, caplog: pytest.LogCaptureFixture) -> None:
    """All else of the scrape is as before: the coordinator's own metrics, and those of other workers."""
    with caplog.at_level(logging.WARNING):
        relay = Relay(lambda: sessions)
        sessions = [worker_with_metrics("a:1", text), worker_with_metrics("b:1", GOOD)]
        families = {each.name: each for each in text_string_to_metric_families((await relay.text()).decode())}
    assert [sample.labels for family in families.values() for sample in family.samples] == [{"worker": "b:1"}]
    assert [record.getMessage() for record in caplog.records] == ["worker a:1: 1 lines of its metrics are not relayed"]
    (rejected,) = relay.collect()
    assert [(sample.labels["worker"], sample.value) for sample in rejected.samples] == [("a:1", 1), ("b:1", 0)]


def test_gauges_and_counters_of_all_workers_are_one_family_each() -> None:
    """Each sample has its worker's label; histograms and other metrics are not relayed."""
    text = relabelled({"a:1": TYPICAL, "b:1": TYPICAL})
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert set(families) == {"vllm:num_requests_running", "vllm:prompt_tokens"}
    assert [(sample.labels, sample.value) for sample in families["vllm:num_requests_running"].samples] == [
        ({"worker": address, "engine": "0", "model_name": "m {1}"}, 3.0) for address in ("a:1", "b:1")
    ]
    assert [sample.labels for sample in families["vllm:prompt_tokens"].samples] == [
        {"worker": "a:1"},
        {"worker": "b:1"},
    ]


def test_addresses_are_escaped() -> None:
    """Quotes and backslashes."""
    (family,) = text_string_to_metric_families(
        relabelled({'unix:/a"b\\c': "# HELP vllm:x X\n# TYPE vllm:x gauge\nvllm:x 1\n"})
    )
    assert family.samples[0].labels == {"worker": 'unix:/a"b\\c'}


def test_an_invalid_response_is_left_out() -> None:
    """The others' metrics are returned."""
    text = relabelled({"a:1": "# TYPE what", "b:1": TYPICAL})
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert set(families) == {"vllm:num_requests_running", "vllm:prompt_tokens"}
