"""A fleet with a dead worker, managed through one of two coordinators: reported as it is, and healed."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.processes import Process, coordinator

NAMES = ("one", "two", "three")
BODY: dict[str, Any] = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 8, "temperature": 0}


@dataclass
class ProcessFleet:
    """Three workers and two coordinators, all processes."""

    folder: Path
    workers: dict[str, Process]
    urls: list[str]

    def address(self, name: str) -> str:
        """Return a worker's address."""
        return f"unix:{self.folder}/{name}.sock"

    def start(self, name: str) -> None:
        """Start a worker."""
        arguments = ["worker", "--engine", "sim", "--sim-step-ms", "1", "--listen", self.address(name)]
        self.workers[name] = Process(arguments, self.folder / f"{name}.log")

    def kill(self, name: str) -> None:
        """Kill a worker."""
        self.workers[name].popen.kill()
        self.workers[name].wait_exit()

    def state(self, coordinator: int) -> dict[str, Any]:
        """Return a coordinator's state, as workers by name."""
        state: dict[str, Any] = httpx.get(f"{self.urls[coordinator]}/v1/rl/state").json()
        state["workers"] = dict(zip(NAMES, state["workers"], strict=False))
        return state

    def wait(self, holds: Callable[[dict[str, Any]], bool]) -> None:
        """Wait until both coordinators report it."""
        deadline = time.monotonic() + 20
        for number in range(2):
            while not holds(state := self.state(number)):
                assert time.monotonic() < deadline, state
                time.sleep(0.02)

    def texts(self, model: str = "simulated") -> set[str]:
        """Send the same request to both coordinators, often enough to reach every worker; return all texts."""
        texts = set()
        for url in self.urls:
            for _ in range(6):
                answer = httpx.post(f"{url}/v1/chat/completions", json={**BODY, "model": model})
                assert answer.status_code == 200, answer.text
                texts.add(answer.json()["choices"][0]["message"]["content"])
        return texts


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[ProcessFleet]:
    """All three workers connected to both coordinators."""
    fleet = ProcessFleet(tmp_path, {}, [])
    with ExitStack() as stack:
        stack.callback(lambda: [worker.stop() for worker in fleet.workers.values()])
        for name in NAMES:
            fleet.start(name)
        addresses = [fleet.address(name) for name in NAMES]
        for name in ("left", "right"):
            (folder := tmp_path / name).mkdir()
            _, url = stack.enter_context(coordinator(folder, addresses, "--enable-rl"))
            fleet.urls.append(url)
        fleet.wait(lambda state: state["ready"] and len(state["workers"]) == 3)
        yield fleet


def test_a_dead_worker_is_reported_and_healed(fleet: ProcessFleet, tmp_path: Path) -> None:
    """Weights, an adapter and a pause while one of three is dead: 502 with each worker, right answers from the rest,
    and the dead one is like the others before it gets a request again, from any coordinator."""
    old = fleet.texts()
    fleet.kill("two")
    fleet.wait(lambda state: state["workers"]["two"]["session"] == "connecting")
    left = fleet.urls[0]
    (step := tmp_path / "step_1").mkdir()

    updated = httpx.post(f"{left}/update_weights", json={"weight_dir": str(step)})
    loaded = httpx.post(f"{left}/load_lora_adapter", json={"lora_name": "red", "lora_path": "/red"})

    for answer in (updated, loaded):
        assert answer.status_code == 502
        workers = answer.json()["error"]["workers"]
        assert [worker["status"] for worker in workers] == ["ok", "error", "ok"]
        assert workers[1]["worker"] == fleet.address("two")
        assert "not connected" in workers[1]["message"]
    fleet.wait(lambda state: state["loras"] != [])
    for number in range(2):
        state = fleet.state(number)
        assert (state["ready"], state["applied_weight_version"]) == (False, "step_1")
        assert not state["workers"]["two"]["routable"]
        assert [lora["loaded_on"] for lora in state["loras"]] == [[fleet.address("one"), fleet.address("three")]]
    new, red = fleet.texts(), fleet.texts("red")
    assert [len(texts) for texts in (old, new, red)] == [1, 1, 1]
    assert len(old | new | red) == 3

    fleet.start("two")
    while not fleet.state(1)["ready"]:
        assert (fleet.texts(), fleet.texts("red")) == (new, red)  # never an answer by the old weights

    fleet.wait(lambda state: state["ready"] and len(state["loras"][0]["loaded_on"]) == 3)
    assert (fleet.texts(), fleet.texts("red")) == (new, red)
    assert fleet.state(1)["workers"]["two"]["weight_version"] == "step_1"


def test_a_pause_reaches_a_worker_that_was_away(fleet: ProcessFleet) -> None:
    """A worker that returns during a pause is paused; the resume, through the other coordinator, reaches it too."""
    left, right = fleet.urls
    fleet.kill("three")
    fleet.wait(lambda state: state["workers"]["three"]["session"] == "connecting")
    assert httpx.post(f"{left}/v1/rl/pause").status_code == 502
    fleet.start("three")
    fleet.wait(lambda state: state["ready"] and state["pause_state"] == "paused")

    assert httpx.post(f"{right}/v1/rl/resume").status_code == 200

    fleet.wait(lambda state: state["ready"] and state["pause_state"] == "running")
    assert len(fleet.texts()) == 1


def test_a_fleet_without_workers_is_a_503(fleet: ProcessFleet) -> None:
    """Operations and state return it."""
    for name in NAMES:
        fleet.kill(name)
    fleet.wait(lambda state: not state["engine_alive"])

    for path in ("/pause", "/v1/rl/resume", "/reset_prefix_cache"):
        assert httpx.post(f"{fleet.urls[0]}{path}").status_code == 503
    assert httpx.get(f"{fleet.urls[0]}/v1/rl/state").status_code == 503
    assert httpx.get(f"{fleet.urls[0]}/liveness").status_code == 503
