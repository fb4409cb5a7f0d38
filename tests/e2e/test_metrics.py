"""`/metrics` of a real coordinator."""

from pathlib import Path

import httpx
from prometheus_client.parser import text_string_to_metric_families

from tests.processes import Service, simulated_service
from tokenwire import __version__

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def _scrape(url: str) -> Samples:
    response = httpx.get(f"{url}/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(response.text)
        for sample in family.samples
    }


def _gained(before: Samples, after: Samples, name: str, **labels: str) -> float:
    key = (f"tokenwire_{name}", tuple(sorted(labels.items())))
    return after.get(key, 0.0) - before.get(key, 0.0)


def test_requests_are_counted_by_route_outcome_and_tokens(service: Service) -> None:
    """A stream, a stop string, a client that leaves, a bad request and a path that is not there."""
    before = _scrape(service.url)
    chat = {"messages": [{"role": "user", "content": "Hello!"}], "max_tokens": 16, "ignore_eos": True}
    url = f"{service.url}/v1/chat/completions"
    prompt_tokens = httpx.post(url, json=chat).json()["usage"]["prompt_tokens"]
    with httpx.stream("POST", url, json={**chat, "stream": True}) as streamed:
        streamed.read()
    httpx.post(url, json={**chat, "max_tokens": 1000, "stop": ["e", "a", " "]})
    with httpx.stream("POST", url, json={**chat, "max_tokens": 1000, "stream": True}) as left:
        next(left.iter_lines())
    service.wait_slots(0, 0)
    service.wait_slots(0, 1)
    httpx.post(url, json={**chat, "temperature": -1})
    httpx.get(f"{service.url}/nothing")
    after = _scrape(service.url)

    def requests(outcome: str, code: str, model: str = "sim", route: str = "/v1/chat/completions") -> float:
        return _gained(before, after, "requests_total", outcome=outcome, code=code, model=model, route=route)

    assert requests("ok", "200") == 3
    assert requests("client_disconnected", "200") == 1
    assert requests("invalid", "400", model="") == 1
    assert requests("invalid", "404", model="", route="none") == 1
    assert _gained(before, after, "time_to_first_token_seconds_count", model="sim") == 4
    assert _gained(before, after, "prompt_tokens_total", model="sim") == 4 * prompt_tokens
    assert _gained(before, after, "completion_tokens_total", model="sim") >= 33
    assert _gained(before, after, "inter_token_latency_seconds_count", model="sim") >= 30
    for reason, count in (("length", 2), ("stop_string", 1), ("client_disconnected", 1)):
        assert _gained(before, after, "sequences_finished_total", model="sim", reason=reason) == count


def test_workers_are_shown_as_they_are(service: Service) -> None:
    """Each with its address, its state and its load."""
    samples = _scrape(service.url)
    for address in service.addresses:
        state = {"worker": address, "model": "sim", "state": "ready"}
        assert samples[("tokenwire_worker_state", tuple(sorted(state.items())))] == 1


def test_workers_own_metrics_are_relayed(service: Service) -> None:
    """Each sample with its worker, under vLLM's names."""
    samples = _scrape(service.url)
    for address in service.addresses:
        labels = {"worker": address, "engine": "0", "model_name": "sim"}
        assert ("vllm:num_requests_running", tuple(sorted(labels.items()))) in samples


def test_any_of_several_processes_answers_for_all(folder: Path) -> None:
    """Requests land anywhere, and are counted once, whichever process responds."""
    options = ("--served-model-name", "sim")
    with simulated_service(folder, *options, coordinator_options=("--processes", "2")) as service:
        service.coordinator.wait_for("tokenwire is ready")  # all processes are, not only the first one
        body = {"prompt": "Hello!", "max_tokens": 4, "ignore_eos": True}
        for _ in range(12):
            assert httpx.post(f"{service.url}/v1/completions", json=body).status_code == 200
        for _ in range(4):
            samples = _scrape(service.url)
            labels = {"route": "/v1/completions", "model": "sim", "code": "200", "outcome": "ok"}
            assert samples[("tokenwire_requests_total", tuple(sorted(labels.items())))] == 12
            assert samples[("tokenwire_completion_tokens_total", (("model", "sim"),))] == 48
            assert samples[("tokenwire_build_info", (("version", __version__),))] == 1
