"""The status page of a coordinator of several processes."""

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


def test_figures_are_sums_of_both(page: Page, service: Service) -> None:
    """Any process returns the samples and counters of all, and the page adds them."""
    with shown(page, service.url):
        sent = wait_both(service.url, page)

        by_process = processes(service.url, "/status.json")
        received = [sum(worker["tokens"] for worker in each["workers"]) for each in by_process.values()]
        assert len(received) == 2
        assert all(received)
        assert sum(received) == 10 * sent
        samples = [each["samples"] for each in processes(service.url, "/status/traffic.json").values()]
        assert sum(sample[TOKENS] for own in samples for sample in own) == 10 * sent

        shown_tokens = """import('/page/traffic.js').then(async ({ Traffic }) => {
          const traffic = new Traffic();
          traffic.add(await (await fetch('/status/traffic.json')).json());
          return traffic.columns(3600).tokens.reduce((total, rate) => total + rate * 5, 0);
        })"""
        assert page.evaluate(shown_tokens) == pytest.approx(10 * sent, rel=0.5)


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
