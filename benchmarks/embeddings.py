"""CPU of a text to embed, in front of the engine: the coordinator's process, and that of vLLM's API server.

Both have the embedded embedding model, the same texts and batches, and one engine each, whose processes do not count.
"""

import random
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import httpx

from benchmarks.processes import Measured, measured
from tests.ports import free_port
from tokenwire.worker.vllm_engine.embedded_model import EMBEDDING_MODEL_NAME, find_embedding_model

_BATCH = 64
_BATCHES = 40
_WARM_UP = 6
_WORDS = ("retrieval", "needs", "vectors", "of", "every", "passage", "that", "somebody", "may", "ask", "for,", "and")
_WORDS_EACH = 24
_SERVER = "vllm.entrypoints.launchers.api_server.entry"
_ENGINE = ("--dtype", "float32", "--enforce-eager")


def run() -> Iterator[dict[str, Any]]:
    """Yield the CPU time of each server and encoding."""
    with ExitStack() as stack:
        worker = stack.enter_context(
            measured(["worker", "--demo", "embeddings", "--listen", "127.0.0.1:0", "--", *_ENGINE])
        )
        address = worker.wait_for(r"ready: .* on (\S+)", 300)[1]
        coordinator = stack.enter_context(measured(["coordinator", "--port", "0", "--worker", address]))
        url = coordinator.wait_for(r"is ready: (http://\S+)")[1]
        yield from _rows("coordinator", coordinator, url)
    port = str(free_port())
    arguments = ["--model", str(find_embedding_model()), "--served-model-name", EMBEDDING_MODEL_NAME, *_ENGINE]
    with measured([*arguments, "--host", "127.0.0.1", "--port", port], module=_SERVER) as server:
        server.wait_for("Application startup complete", 300)
        yield from _rows("vllm serve", server, f"http://127.0.0.1:{port}")


def _rows(name: str, process: Measured, url: str) -> Iterator[dict[str, Any]]:
    source = random.Random(1)
    with httpx.Client(base_url=url, timeout=120) as client:
        for encoding in ("base64", "float"):
            for batch in (_BATCH, 1):
                bodies = [
                    {
                        "model": EMBEDDING_MODEL_NAME,
                        "input": [" ".join(source.choices(_WORDS, k=_WORDS_EACH)) for _ in range(batch)],
                        "encoding_format": encoding,
                    }
                    for _ in range(_WARM_UP + _BATCHES)
                ]
                _send(client, bodies[:_WARM_UP])
                before = process.cpu_seconds()
                _send(client, bodies[_WARM_UP:])
                cost = 1e6 * (process.cpu_seconds() - before) / (_BATCHES * batch)
                yield {"case": name, "encoding": encoding, "texts_per_request": batch, "us_per_text": cost}


def _send(client: httpx.Client, bodies: list[dict[str, Any]]) -> None:
    for body in bodies:
        response = client.post("/v1/embeddings", json=body)
        if len(response.json()["data"]) != len(body["input"]):
            raise RuntimeError(response.text[:500])
