"""Workers' own metrics, as relayed by a coordinator."""

from prometheus_client.parser import text_string_to_metric_families

from tokenwire.coordinator.observability.metrics.relay import relabelled

_WORKER = """\
# HELP vllm:num_requests_running Running.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m {1}"} 3.0
# HELP vllm:prompt_tokens_total Prompts.
# TYPE vllm:prompt_tokens_total counter
vllm:prompt_tokens_total 9.0
# HELP vllm:prompt_tokens_created Prompts.
# TYPE vllm:prompt_tokens_created gauge
vllm:prompt_tokens_created 1.7e9
# HELP vllm:ttft_seconds First.
# TYPE vllm:ttft_seconds histogram
vllm:ttft_seconds_bucket{le="+Inf"} 1.0
vllm:ttft_seconds_count 1.0
vllm:ttft_seconds_sum 1.0
# HELP process_open_fds Files.
# TYPE process_open_fds gauge
process_open_fds 7.0
"""


def test_gauges_and_counters_of_all_workers_are_one_family_each() -> None:
    """Each sample has its worker's label; histograms and other metrics are not relayed."""
    text = relabelled({"a:1": _WORKER, "b:1": _WORKER})
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
    text = relabelled({"a:1": "# TYPE what", "b:1": _WORKER})
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert set(families) == {"vllm:num_requests_running", "vllm:prompt_tokens"}
