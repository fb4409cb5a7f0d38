"""The metrics queried by alerts and dashboard exist in a live system."""

import base64
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import grpc
import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.coordinator.media import pictures
from tests.monitoring.files import metrics
from tests.processes import Service, simulated_service
from tokenwire.v1 import control_pb2, control_pb2_grpc
from tokenwire.worker.engine.media import processing_metrics
from tokenwire.worker.media.processor_pool import ProcessorPool

ONLY_REAL_ENGINES = {"vllm:num_preemptions", "vllm:prefix_cache_hits", "vllm:prefix_cache_queries"}
"""What a simulated engine does not report."""
BODY = {"prompt": "Hello", "max_tokens": 30}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A small service with a tenant and without a queue, after traffic of every kind."""
    worker = ["--sim-step-ms", "5", "--sim-max-num-seqs", "1", "--sim-image-tokens", "8"]
    folder = tmp_path_factory.mktemp("service")
    (keys := folder / "keys").write_text("search sk-search\n")
    options = ["--max-queue", "0", "--api-keys-file", str(keys), "--enable-trajectories"]
    headers = {"Authorization": "Bearer sk-search"}
    with (
        simulated_service(folder, *worker, coordinator_options=options) as service,
        httpx.Client(headers=headers) as client,
    ):
        url = f"{service.url}/v1/completions"
        text = client.post(url, json=BODY).json()["choices"][0]["text"]
        assert client.post(url, json={**BODY, "stop": [text[3:5]]}).json()["choices"][0]["finish_reason"] == "stop"
        assert client.post(url, json={**BODY, "max_tokens": -1}).status_code == 400
        picture = {"url": "data:image/png;base64," + base64.b64encode(pictures.png()).decode()}
        messages = [{"role": "user", "content": [{"type": "image_url", "image_url": picture}]}]
        chat = client.post(f"{service.url}/v1/chat/completions", json={"messages": messages, "max_tokens": 3})
        assert chat.status_code == 200
        # One runs and two are sent ahead; then there is no capacity, until their client disconnects.
        with client.stream("POST", url, json={**BODY, "n": 3, "max_tokens": 20_000, "stream": True}):
            service.wait_slots(3)
            assert client.post(url, json=BODY).status_code == 429
        service.wait_slots(0)
        yield service


def test_every_metric_exists(service: Service) -> None:
    """After some traffic, with a stop string, an abort and a refusal, each is there."""
    with grpc.insecure_channel(service.addresses[0]) as channel:
        own = control_pb2_grpc.ControlStub(channel).GetMetrics(control_pb2.GetMetricsRequest(), timeout=60).text
    reported = set()
    for text in (httpx.get(f"{service.url}/metrics").text, own):
        for family in text_string_to_metric_families(text):
            reported |= {family.name, *(sample.name for sample in family.samples)}

    missing = {name.removesuffix("_total") for name in metrics() - reported}
    assert (
        missing - ONLY_REAL_ENGINES - {family.name for family in processing_metrics(ProcessorPool("", b"", 1))} == set()
    )


def test_the_engine_reports_the_rest() -> None:
    """vLLM has a metric of each name that only real engines have."""
    spec = find_spec("vllm")
    if spec is None or spec.origin is None:
        pytest.skip("needs vLLM")
    source = (Path(spec.origin).parent / "v1" / "metrics" / "loggers.py").read_text()

    assert {name for name in ONLY_REAL_ENGINES if f'name="{name}"' not in source} == set()
