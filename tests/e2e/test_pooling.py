"""Models that embed, beside one that generates: real processes, and OpenAI's own client."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import OpenAI

from tests.processes import Process, Service, coordinator, wait_routable

TEXTS = [f"text number {number}" for number in range(16)]


@pytest.fixture
def mixed(tmp_path: Path) -> Iterator[Service]:
    """A worker that classifies, one that embeds, and one that generates."""
    classifies = ["--sim-pooling-task", "classify", "--sim-embedding-width", "2", "--served-model-name", "classifier"]
    embeds = ["--sim-embedding-width", "32", "--served-model-name", "embedder"]
    with ExitStack() as stack:
        workers, addresses = [], []
        for name, options in (("classifies", classifies), ("embeds", embeds), ("chats", [])):
            addresses.append(f"unix:{tmp_path}/{name}.sock")
            arguments = ["worker", "--engine", "sim", "--sim-step-ms", "1", "--listen", addresses[-1], *options]
            workers.append(Process(arguments, tmp_path / f"{name}.log"))
            stack.callback(workers[-1].stop)
        for worker in workers:
            worker.wait_for("ready: ")
        process, url = stack.enter_context(coordinator(tmp_path, addresses))
        wait_routable(url, 3)
        yield Service(process, url, workers, addresses)
        assert "Traceback" not in process.log, process.log


def embeddings(client: OpenAI, texts: list[str]) -> list[list[float]]:
    """Return vectors in the client's own default format, which is base64 on the wire."""
    return [each.embedding for each in client.embeddings.create(model="embedder", input=texts).data]


def test_both_kinds_of_models_are_served_together(mixed: Service) -> None:
    """Each by its own routes; a request that names none gets the first model that can serve it."""
    with OpenAI(base_url=f"{mixed.url}/v1", api_key="unused", max_retries=0) as client:
        vectors = embeddings(client, TEXTS)
        floats = client.embeddings.create(model="", input=TEXTS[0], encoding_format="float").data[0].embedding
        messages: list[Any] = [{"role": "user", "content": "Hi"}]
        chat = client.chat.completions.create(model="simulated", messages=messages, max_tokens=5)
        with pytest.raises(Exception, match="does not support Embeddings API"):
            client.embeddings.create(model="simulated", input="Hi")

        assert {model.id for model in client.models.list()} == {"classifier", "embedder", "simulated"}
    assert len({tuple(vector) for vector in vectors}) == len(TEXTS)
    assert floats == vectors[0]
    assert chat.choices[0].message.content


def test_batches_of_many_clients_wait_for_their_turn(mixed: Service) -> None:
    """Each input takes a step, so that more of them may wait than replies."""

    def status(number: int) -> int:
        body = {"model": "embedder", "input": [f"{number} {text}" for text in TEXTS * 16]}
        return httpx.post(f"{mixed.url}/v1/embeddings", json=body, timeout=60).status_code

    with ThreadPoolExecutor(16) as clients:
        assert [*clients.map(status, range(16))] == [200] * 16
