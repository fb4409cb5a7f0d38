"""Models that embed, beside one that generates: real processes, and OpenAI's own client."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from openai import OpenAI

from tests.processes import Process, Service, coordinator, wait_routable

TEXTS = [f"text number {number}" for number in range(16)]
BATCHES = 32


@pytest.fixture
def mixed(tmp_path: Path) -> Iterator[Service]:
    """Two slow workers that embed, and one that generates."""
    embeds = ["--sim-embedding-width", "32", "--served-model-name", "embedder", "--sim-step-ms", "10"]
    embeds += ["--sim-prefill-rate", "20000"]
    with ExitStack() as stack:
        workers, addresses = [], []
        for name, options in (("one", embeds), ("two", embeds), ("chat", ["--sim-step-ms", "1"])):
            addresses.append(f"unix:{tmp_path}/{name}.sock")
            arguments = ["worker", "--engine", "sim", "--listen", addresses[-1], *options]
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

        assert {model.id for model in client.models.list()} == {"embedder", "simulated"}
    assert len({tuple(vector) for vector in vectors}) == len(TEXTS)
    assert floats == vectors[0]
    assert chat.choices[0].message.content


def test_a_killed_worker_costs_no_batch(mixed: Service) -> None:
    """Its inputs are computed by the other one: no error, and the vectors of an undisturbed run."""
    with OpenAI(base_url=f"{mixed.url}/v1", api_key="unused", max_retries=0) as client:
        expected = embeddings(client, TEXTS)
        with ThreadPoolExecutor(BATCHES) as threads:
            running = [threads.submit(embeddings, client, TEXTS) for _ in range(BATCHES)]
            while not mixed.server_info(0).open_slots and not all(each.done() for each in running):
                pass
            mixed.workers[0].popen.kill()
            results = [each.result() for each in running]

    assert results == [expected] * BATCHES
