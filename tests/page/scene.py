"""A busy fleet to look at: two processes, three workers of which one is lost, and traffic that changes."""

import json
import math
import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
from tokenizers import Tokenizer

from tests.processes import Service, simulated_service
from tests.tokenizers import npm_tokenizer_directory

TEXT = (
    "The coordinator owns text and the workers own token ids: your prompt went up as ids, and each step of the engine "
    "comes down as one frame. "
)
_CLIENTS = 40
_WAVE_S = 100
"""How long the number of busy clients takes to rise and fall."""


@contextmanager
def busy_service(folder: Path) -> Iterator[tuple[Service, int]]:
    """Run the fleet under load; yields it and the length of its replies, in tokens."""
    model = npm_tokenizer_directory("qwen3")
    token_ids = Tokenizer.from_file(str(model / "tokenizer.json")).encode(TEXT).ids
    (script := folder / "script.json").write_text(json.dumps(token_ids))
    options = [str(model), "--served-model-name", "qwen3", "--sim-step-ms", "22", "--sim-kv-tokens", "60000"]
    options += ["--sim-script", str(script), "--sim-prefill-rate", "20000"]
    with (
        simulated_service(
            folder, *options, workers=3, coordinator_options=["--processes", "2", "--enable-debug-headers"]
        ) as service,
        _load(service.url),
    ):
        yield service, len(token_ids)


@contextmanager
def _load(url: str) -> Iterator[None]:
    """Send requests from clients that are busy in waves."""
    done = threading.Event()
    with ThreadPoolExecutor(_CLIENTS) as clients:
        try:
            for number in range(_CLIENTS):
                clients.submit(_client, url, number, done)
            yield
        finally:
            done.set()


def _client(url: str, number: int, done: threading.Event) -> None:
    chance = random.Random(number)
    started = time.monotonic()
    while not done.is_set():
        busy = 0.55 + 0.35 * math.sin(2 * math.pi * (time.monotonic() - started) / _WAVE_S)
        if number > _CLIENTS * busy:
            done.wait(1)
            continue
        own = "What is a frame? " * chance.randrange(4, 160)
        body = {"prompt": f"{number % 7} {'You are helpful. ' * 60}{own}", "max_tokens": chance.randrange(40, 200)}
        # Some are in a hurry, and fail.
        headers = {"X-Request-Timeout": "0.4"} if chance.random() < 0.02 else {}
        httpx.post(f"{url}/v1/completions", json=body, headers=headers, timeout=60)
        done.wait(chance.random())
