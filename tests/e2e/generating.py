"""Requests that are under way on a real engine while a test does something else."""

import threading
from typing import Any

import httpx

from tests.conformance.parity.events import id_chunks
from tests.processes import Service

TOKENS = 200
"""The length of a reply."""


class Generating(threading.Thread):
    """A request under way."""

    def __init__(self, url: str, first: int) -> None:
        super().__init__()
        self.choice: dict[str, Any] = {}
        self.started = threading.Event()
        """It has a first token."""
        self._url = url
        self._body = {
            "token_ids": [1, first, 100],
            "sampling_params": {"max_tokens": TOKENS, "temperature": 0, "ignore_eos": True},
            "stream": True,
        }
        self.start()

    def run(self) -> None:
        """Read a stream, and keep its choice."""
        events = []
        with httpx.stream("POST", f"{self._url}/inference/v1/generate", json=self._body, timeout=120) as answer:
            for line in answer.iter_lines():
                if line:
                    events.append(line.removeprefix("data: "))
                    self.started.set()
        self.choice = id_chunks(events)["choices"]["0"]


def under_way(service: Service, *firsts: int) -> list[Generating]:
    """Return requests that have tokens each and are not at their end; if one has ended by then, send them again."""
    while True:
        running = [Generating(service.url, first) for first in firsts]
        for thread in running:
            assert thread.started.wait(120)
        if service.server_info().open_slots == len(firsts):
            return running
        for thread in running:
            thread.join()


def kept_by_pause(service: Service, client: httpx.Client, *firsts: int) -> list[Generating]:
    """Return requests that a pause has stopped in the middle; if it came too late, send them again."""
    while True:
        running = under_way(service, *firsts)
        assert client.post("/pause?mode=keep&clear_cache=false").json() == {"status": "paused"}
        if service.server_info().open_slots == len(firsts):
            return running
        assert client.post("/resume").json() == {"status": "resumed"}
        for thread in running:
            thread.join()
