"""CPU of a text to embed, in front of the engine: the coordinator's process, and that of vLLM's API server.

Both have the embedded embedding model, the same texts and batches, and one engine each, whose processes do not count.
Engines have one of the model's layers, with other weights: with all of them a CPU takes a second for a batch, in which
both processes do more by the clock than for its texts. That is measured by itself, without requests, and so is the
tokenizer alone, in this process, a floor for both.
"""

import random
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx

from benchmarks.processes import Measured, measured
from tests.ports import free_port
from tokenwire.coordinator.text.tokenizer import ModelTokenizer
from tokenwire.worker.vllm_engine.embedded_model import EMBEDDING_MODEL_NAME, find_embedding_model

_BATCHES = 10
_ROUNDS = 8
"""In each, one server after the other, so that what else the machine does meets both."""
_WARM_UP = 6
_DOCUMENTS = Path(__file__).parents[1] / "docs"
"""Passages of these are the texts: a coordinator keeps the ids of words, so that these must not be a few."""
_WORDS_EACH = 16
_MOST_CHARS = 32
_SERVER = "vllm.entrypoints.launchers.api_server.entry"
_ENGINE = (
    *("--dtype", "float32", "--enforce-eager"),
    *("--load-format", "dummy", "--hf-overrides", '{"num_hidden_layers": 1}'),
)
_IDLE_S = 5.0
_ENVIRONMENT = {"VLLM_CPU_KVCACHE_SPACE": "1"}  # else vLLM takes nearly all of the memory
_BATCH = 64
_CASES = [(encoding, texts) for encoding in ("base64", "float") for texts in (_BATCH, 1)]

_Server = tuple[Measured, str]
"""With its URL."""


def run() -> dict[str, list[dict[str, Any]]]:
    """Return each server's CPU time for a text, the median of its rounds, and that of a second without requests."""
    with ExitStack() as stack:
        servers = dict(zip(("coordinator", "vllm serve"), _started(stack), strict=True))
        rows = [row for encoding, texts in _CASES for row in _compared(servers, encoding, texts)]
        idle = [{"case": name, "us_per_s": _idle_cost(process)} for name, (process, _) in servers.items()]
    alone = {"case": "tokenizer alone", "encoding": "-", "texts_per_request": _BATCH, "us_per_text": _tokenizer_cost()}
    return {"embeddings": [*rows, alone], "embeddings_idle": idle}


def _compared(servers: Mapping[str, _Server], encoding: str, texts: int) -> Iterator[dict[str, Any]]:
    source, words = random.Random(1), _words()
    costs: dict[str, list[float]] = {name: [] for name in servers}
    for _ in range(_ROUNDS):
        batches = [_texts(source, words, texts) for _ in range(_WARM_UP + _BATCHES)]
        for name, (process, url) in servers.items():
            costs[name].append(_cost(process, url, encoding, batches))
    for name, each in costs.items():
        yield {
            "case": name,
            "encoding": encoding,
            "texts_per_request": texts,
            "us_per_text": statistics.median(each),
        }


def _idle_cost(process: Measured) -> float:
    before = process.cpu_seconds()
    time.sleep(_IDLE_S)
    return 1e6 * (process.cpu_seconds() - before) / _IDLE_S


def _started(stack: ExitStack) -> list[_Server]:
    """Return both servers when they are ready."""
    port = str(free_port())
    model = ["--model", str(find_embedding_model()), "--served-model-name", EMBEDDING_MODEL_NAME, *_ENGINE]
    worker_arguments = ["worker", "--demo", "embeddings", "--listen", "127.0.0.1:0", "--", *_ENGINE]
    server_arguments = [*model, "--host", "127.0.0.1", "--port", port]
    worker = stack.enter_context(measured(worker_arguments, environment=_ENVIRONMENT))
    address = worker.wait_for(r"ready: .* on (\S+)", 300)[1]
    coordinator = stack.enter_context(measured(["coordinator", "--port", "0", "--worker", address]))
    server = stack.enter_context(measured(server_arguments, module=_SERVER, environment=_ENVIRONMENT))
    url = coordinator.wait_for(r"is ready: (http://\S+)")[1]
    server.wait_for("Application startup complete", 300)
    return [(coordinator, url), (server, f"http://127.0.0.1:{port}")]


def _words() -> list[str]:
    """Return the words of the documents but the longest, which are paths: sixteen of them the model does not take."""
    words = (word for path in sorted(_DOCUMENTS.rglob("*.md")) for word in path.read_text().split())
    return [word for word in words if len(word) <= _MOST_CHARS]


def _texts(source: random.Random, words: list[str], count: int) -> list[str]:
    starts = [source.randrange(len(words) - _WORDS_EACH) for _ in range(count)]
    return [" ".join(words[start : start + _WORDS_EACH]) for start in starts]


def _cost(process: Measured, url: str, encoding: str, batches: Sequence[list[str]]) -> float:
    """Return what a text costs a process, after some batches to warm up, in µs."""
    with httpx.Client(base_url=url, timeout=120) as client:
        _send(client, encoding, batches[:_WARM_UP])
        before = process.cpu_seconds()
        _send(client, encoding, batches[_WARM_UP:])
        return 1e6 * (process.cpu_seconds() - before) / sum(map(len, batches[_WARM_UP:]))


def _send(client: httpx.Client, encoding: str, batches: Sequence[list[str]]) -> None:
    for batch in batches:
        body = {"model": EMBEDDING_MODEL_NAME, "input": batch, "encoding_format": encoding}
        response = client.post("/v1/embeddings", json=body)
        if len(response.json()["data"]) != len(batch):
            raise RuntimeError(response.text[:500])


def _tokenizer_cost() -> float:
    """Return what the tokenizers library alone takes for a text."""
    backend = ModelTokenizer.from_directory(find_embedding_model()).backend
    source, words = random.Random(1), _words()
    batches = [_texts(source, words, _BATCH) for _ in range(_ROUNDS * _BATCHES)]
    for batch in batches[:_WARM_UP]:
        backend.encode_batch_fast(batch)
    before = time.process_time()
    for batch in batches:
        backend.encode_batch_fast(batch)
    return 1e6 * (time.process_time() - before) / (len(batches) * _BATCH)
