"""The status page of a coordinator of several processes."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.page.browser import Page
from tests.page.conftest import shown
from tests.processes import Service, simulated_service

STREAMS = 12
TOKENS, REQUESTS = 2, 3


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Two processes, and requests that end in both: each connection goes to either."""
    options = ["--processes", "2"]
    with simulated_service(tmp_path_factory.mktemp("service"), "--sim-step-ms", "1", coordinator_options=options) as it:
        yield it


def complete(url: str) -> None:
    """Generate ten tokens over a connection of its own."""
    assert httpx.post(f"{url}/v1/completions", json={"prompt": "Hi", "max_tokens": 10}).status_code == 200


def processes(url: str, path: str) -> dict[str, Any]:
    """Return what each process contributes to a response."""
    return {each["process"]: each for each in httpx.get(f"{url}{path}").json()["processes"]}


def wait_both(url: str, page: Page) -> int:
    """Complete requests until both processes have ended some and sampled all; return how many there were."""
    sent = 0
    while True:
        with ThreadPoolExecutor(STREAMS) as threads:
            list(threads.map(complete, [url] * STREAMS))
        sent += STREAMS
        counts: list[int] = []
        while sum(counts) < sent:
            found = processes(url, "/status/traffic.json").values()
            counts = [sum(sample[REQUESTS] for sample in each["samples"]) for each in found]
            page.evaluate("new Promise(resolve => setTimeout(resolve, 200))")
        if all(counts):
            return sent


def test_any_process_responds_for_both(page: Page, service: Service) -> None:
    """The samples and counters of all are returned, each once."""
    with shown(page, service.url):
        sent = wait_both(service.url, page)

        by_process = processes(service.url, "/status.json")
        received = [sum(worker["tokens"] for worker in each["workers"]) for each in by_process.values()]
        assert len(received) == 2
        assert all(received)
        assert sum(received) == 10 * sent
        samples = [each["samples"] for each in processes(service.url, "/status/traffic.json").values()]
        assert sum(sample[TOKENS] for own in samples for sample in own) == 10 * sent


def response(period: int, **samples: list[list[Any]]) -> dict[str, Any]:
    """Return what the server responds with, with short histograms."""
    found = [{"process": process, "samples": own} for process, own in samples.items()]
    bounds = {"first_token_bounds_s": [0.1, 0.2], "token_gap_bounds_s": [0.01]}
    return {"period": period, "period_s": 5, **bounds, "processes": found}


def columns(page: Page, *responses: dict[str, Any]) -> tuple[int, dict[str, list[float | None]]]:
    """Let the page add responses; return what it requests next, and the last two values of each column."""
    since, shown_columns = page.evaluate(
        f"""import('/page/traffic.js').then(({{ Traffic }}) => {{
          const traffic = new Traffic();
          for (const response of {json.dumps(responses)}) traffic.add(response);
          return [traffic.since, traffic.columns(300)];
        }})"""
    )
    return since, {name: values[-2:] for name, values in shown_columns.items()}


def test_the_charts_add_the_processes(page: Page, service: Service) -> None:
    """Tokens per second of each sample are added; percentiles and ratios are of all samples of 30 s."""
    one = [[99, 5.0, 50, 2, 1, 100, 80, [1, 0, 0], []], [100, 5.0, 100, 0, 0, 0, 0, [], [4, 0]]]
    other = [[100, 2.5, 25, 2, 0, 300, 0, [0, 3, 0], []]]
    with shown(page, service.url):
        since, found = columns(page, response(100, one=one, other=other))

    assert since == 97
    assert found["time"] == [495, 500]
    assert found["tokens"] == [10, 30]
    assert found["failures"] == [0.5, 0.25]
    assert found["cached"] == [0.8, 0.2]
    assert found["first50"] == [pytest.approx(0.05), pytest.approx(0.1 + 0.1 / 3)]
    assert found["gap95"] == [None, pytest.approx(0.0095)]


def test_the_charts_are_of_the_coordinator_that_responds(page: Page, service: Service) -> None:
    """Repeated samples count once. Behind a load balancer another one may respond: all that it has is requested."""
    sample = [100, 5.0, 50, 1, 0, 10, 0, [], []]
    following = [101, 5.0, 10, 1, 0, 10, 0, [], []]
    with shown(page, service.url):
        first = response(100, one=[sample])
        assert columns(page, first, response(101, one=[sample, following]))[1]["tokens"] == [10, 2]
        since, found = columns(page, first, response(101, another=[following]))

    assert since == 0
    assert found["tokens"] == [None, 2]


def process_snapshot(process: str, seconds: float, tokens: int, **worker: Any) -> dict[str, Any]:
    """Return the snapshot of a process with one worker."""
    load = {"max_num_seqs": 8, "running": 5, "waiting": 0, "kv_cache_usage": 0.5, "open_slots": 2, "model": "m"}
    state = {"session": "ready", "routable": True, "reason": None, **load, **worker}
    model = {"names": ["m"], "adapters": [], "max_model_len": 10, "waiting_requests": 3}
    about = {"process": process, "version": "1", "state": "ready", "uptime_s": seconds, "models": [model]}
    return {**about, "workers": [{"worker": "w", "tokens": tokens, **state}]}


def test_a_worker_is_merged_of_all_processes(page: Page, service: Service) -> None:
    """Slots, tokens and queues are added, the reported load is not; a process that cannot reach it is counted."""
    lost = {"session": "connecting", "routable": False, "reason": "gone", "running": None, "waiting": None}
    before = [process_snapshot("one", 10.0, 100), process_snapshot("other", 20.0, 700)]
    after = [process_snapshot("one", 12.0, 120), process_snapshot("other", 21.0, 730, **lost)]
    with shown(page, service.url):
        fleet = page.evaluate(
            f"""import('/page/fleet.js').then(({{ merge }}) => {{
              merge({json.dumps(before)});
              return merge({json.dumps(after)});
            }})"""
        )

    (worker,), (model,) = fleet["workers"], fleet["models"]
    assert (worker["open_slots"], worker["running"], worker["rate"]) == (4, 5, 10 + 30)
    assert (worker["ready"], worker["only"], worker["reason"]) == (False, "in 1 of 2 processes", "gone")
    assert model["waiting_requests"] == 6
    assert [process["rate"] for process in fleet["processes"]] == [10, 30]


def test_each_process_has_a_row(page: Page, service: Service) -> None:
    """Open sequences and tokens per second are those of all; a worker is shown once."""
    with (
        shown(page, service.url),
        ThreadPoolExecutor(STREAMS) as threads,
        httpx.Client(limits=httpx.Limits(max_keepalive_connections=0)) as client,
    ):
        body = {"prompt": "Hi", "max_tokens": 20_000}
        streams = [
            client.build_request("POST", f"{service.url}/v1/completions", json={**body, "stream": True})
        ] * STREAMS
        replies = list(threads.map(lambda request: client.send(request, stream=True), streams))
        column = "[...document.querySelectorAll('#processes td:nth-child(4)')].map(cell => Number(cell.textContent))"
        page.wait_for(f"{column}.length === 2 && {column}[0] + {column}[1] === {STREAMS}")
        page.wait_for(f"document.querySelector('#running').textContent === '{STREAMS}'")
        assert page.evaluate("document.querySelectorAll('#workers tbody tr').length") == 1
        assert set(processes(service.url, "/status.json")) == set(
            page.evaluate("[...document.querySelectorAll('#processes tbody tr')].map(row => row.dataset.key)")
        )
        for reply in replies:
            reply.close()
