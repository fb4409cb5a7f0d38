"""vLLM's most used metrics, with its names and labels, for a simulated engine."""

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from tokenwire.v1 import inference_pb2 as pb

_LABELS = ("model_name", "engine")


def families(model: str, load: pb.Load, prompt_tokens: int, generation_tokens: int) -> list[Metric]:
    """Return the metrics that dashboards and autoscalers read."""
    values: tuple[tuple[type[GaugeMetricFamily | CounterMetricFamily], str, str, float], ...] = (
        (GaugeMetricFamily, "num_requests_running", "Number of requests in model execution batches.", load.running),
        (GaugeMetricFamily, "num_requests_waiting", "Number of requests waiting to be processed.", load.waiting),
        (GaugeMetricFamily, "kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.", load.kv_cache_usage),
        (CounterMetricFamily, "prompt_tokens", "Number of prefill tokens processed.", prompt_tokens),
        (CounterMetricFamily, "generation_tokens", "Number of generation tokens processed.", generation_tokens),
    )
    result: list[Metric] = []
    for kind, name, text, value in values:
        family = kind(f"vllm:{name}", text, labels=_LABELS)
        family.add_metric((model, "0"), value)
        result.append(family)
    return result
