"""A request that kills engines kills two, or three that served nobody, however it is sent; others are served."""

import asyncio
import contextlib
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from tests.processes import Process, coordinator, simulated_worker, wait_routable
from tests.workers import until
from tokenwire.coordinator.fleet.death_evidence import LEAST_SERVED

POISON = "\a"
"""Nothing else has its id."""
FAULTS = ("--sim-step-ms", "20", "--sim-fault", f"exit@prompt={ord(POISON)}")


def dead(workers: list[Process]) -> int:
    """Count workers that have died."""
    return sum(worker.popen.poll() is not None for worker in workers)


@pytest.mark.parametrize(("served", "deaths"), [(False, 3), (True, 2)])
@pytest.mark.parametrize("attempts", ["0", "3"])
def test_sending_it_again_kills_no_other_worker(tmp_path: Path, attempts: str, served: bool, deaths: int) -> None:
    """With and without failover, the real client retries it; its last response is a 422."""
    with ExitStack() as stack:
        started = [stack.enter_context(simulated_worker(tmp_path, *FAULTS, name=f"worker-{n}")) for n in range(4)]
        addresses = [address for _, address in started]
        _, url = stack.enter_context(coordinator(tmp_path, addresses, "--failover-attempts", attempts))
        client = stack.enter_context(openai.OpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=3))
        for _ in started * LEAST_SERVED if served else ():  # as many on each worker, by turns
            client.completions.create(model="simulated", prompt="Hi", max_tokens=5)
        for _ in range(4):
            with pytest.raises(openai.APIStatusError) as rejected:
                client.completions.create(model="simulated", prompt=POISON, max_tokens=5)
        answer = client.completions.create(model="simulated", prompt="Hi", max_tokens=5)

        assert rejected.value.status_code == 422
        assert "Two workers died" in rejected.value.message
        assert answer.usage is not None
        assert answer.usage.completion_tokens == 5
        assert dead([worker for worker, _ in started]) == deaths


def test_processes_that_share_a_port_share_the_cache(tmp_path: Path) -> None:
    """On any of them, the request kills three workers in total, which have served nobody."""
    with ExitStack() as stack:
        started = [stack.enter_context(simulated_worker(tmp_path, *FAULTS, name=f"worker-{n}")) for n in range(4)]
        addresses = [address for _, address in started]
        options = ("--failover-attempts", "0", "--processes", "4")
        _, url = stack.enter_context(coordinator(tmp_path, addresses, *options))
        for _ in range(8):
            with (
                openai.OpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=3) as client,
                pytest.raises(openai.APIStatusError) as rejected,
            ):
                client.completions.create(model="simulated", prompt=POISON, max_tokens=5)

        assert rejected.value.status_code == 422
        assert dead([worker for worker, _ in started]) == 3


async def test_requests_of_disconnected_clients_count_too(tmp_path: Path) -> None:
    """They disconnect as the workers die of their requests."""
    with ExitStack() as stack:
        started = [stack.enter_context(simulated_worker(tmp_path, *FAULTS, name=f"worker-{n}")) for n in range(4)]
        workers = [worker for worker, _ in started]
        _, url = stack.enter_context(coordinator(tmp_path, [address for _, address in started]))
        body: dict[str, Any] = {"model": "simulated", "prompt": POISON, "max_tokens": 5, "stream": True}
        async with httpx.AsyncClient(base_url=url) as client:
            for deaths in (1, 2, 3):
                while dead(workers) < deaths:  # on a busy machine, some leave before a worker has their request
                    with contextlib.suppress(httpx.TimeoutException):
                        await client.post("/v1/completions", json=body, timeout=0.2)
                    with contextlib.suppress(TimeoutError):
                        await until(lambda deaths=deaths: dead(workers) >= deaths, timeout_s=3)  # type: ignore[misc]
            await asyncio.to_thread(wait_routable, url, 1)
            response = await client.post("/v1/completions", json=body, timeout=30)
            while response.status_code == 503:  # it is not known yet which workers died
                response = await client.post("/v1/completions", json=body, timeout=30)
        assert response.status_code == 422, response.text
        assert dead(workers) == 3
