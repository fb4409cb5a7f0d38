"""The embedded embedding model on real vLLM: bit for bit the vectors of vLLM's own server, by one start of each.

It is compared with two workers, and with itself as the worker of a coordinator.
"""

import random
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import httpx
import pytest

from tests.conformance.json_values import numbers_of, stable_fields
from tests.conformance.servers import START_TIMEOUT_S, VllmServer, lean_environment
from tests.processes import Process, coordinator, wait_routable
from tokenwire.worker.vllm_engine.embedded_model import EMBEDDING_MODEL_NAME, find_embedding_model

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]

WORDS = (
    *("the", "quick", "brown", "fox", "naïve", "façade", "日本語", "🙂", "embedding", "RETRIEVAL", "vector,", "dog's"),
    *("(lazy)", "x", "42", "\t\n"),
)
DTYPES = ("float32", "float16", "bfloat16", "fp8_e4m3", "fp8_e5m2")
ENGINE = ("--dtype", "float32", "--enforce-eager")


def drawn_inputs() -> list[Any]:
    """Return 200 inputs: texts, an empty one among them, and ids."""
    source = random.Random(20)
    texts = [" ".join(source.choices(WORDS, k=source.randrange(0, 60))) for _ in range(140)]
    lists = [[source.randrange(1000, 30_000) for _ in range(source.randrange(1, 60))] for _ in range(60)]
    return ["", *texts[1:], *lists]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, httpx.Client]]:
    """Clients of vLLM's own server, and of coordinators in front of two workers, and of that server."""
    folder = tmp_path_factory.mktemp("embeddings")
    with ExitStack() as stack:
        options = ("--served-model-name", EMBEDDING_MODEL_NAME, "--max-model-len", "256")
        vllm = VllmServer(folder, options, find_embedding_model())
        stack.callback(vllm.stop)
        workers, addresses = [], []
        for name in ("one", "two"):
            addresses.append(f"unix:{folder}/{name}.sock")
            arguments = ["worker", "--demo", "embeddings", "--listen", addresses[-1], "--", *ENGINE]
            workers.append(Process(arguments, folder / f"{name}.log", lean_environment()))
            stack.callback(workers[-1].stop)
        for worker in workers:
            worker.wait_for("ready: ", 2 * START_TIMEOUT_S)  # three engines start together
        process, url = stack.enter_context(coordinator(folder, addresses))
        wait_routable(url, 2)
        vllm.wait_ready()
        (folder / "plain").mkdir()
        plain_process, plain_url = stack.enter_context(
            coordinator(folder / "plain", [vllm.url], "--tokenizer", str(find_embedding_model()))
        )
        urls = {"vllm": vllm.url, "workers": url, "plain": plain_url}
        yield {name: stack.enter_context(httpx.Client(base_url=base, timeout=120)) for name, base in urls.items()}
        for each in (process, plain_process):
            assert "Traceback" not in each.log, each.log


@pytest.fixture(scope="module", params=["workers", "plain"])
def both(servers: dict[str, httpx.Client], request: pytest.FixtureRequest) -> tuple[httpx.Client, httpx.Client]:
    """Clients of vLLM's own server and of a coordinator."""
    return servers["vllm"], servers[request.param]


def vectors(client: httpx.Client, given: Any, **options: Any) -> list[str]:
    """Return the vectors of a request, in base64."""
    body = {"model": EMBEDDING_MODEL_NAME, "input": given, "encoding_format": "base64", **options}
    response = client.post("/v1/embeddings", json=body)
    assert response.status_code == 200, response.text
    return [each["embedding"] for each in response.json()["data"]]


def test_vectors_are_vllms_alone_and_together(servers: dict[str, httpx.Client]) -> None:
    """200 drawn inputs: each alone, and in batches that two workers share, or that the server itself computes."""
    inputs = drawn_inputs()
    texts, lists = ([each for each in inputs if isinstance(each, kind)] for kind in (str, list))

    expected = vectors(servers["vllm"], texts) + vectors(servers["vllm"], lists)

    for name in ("workers", "plain"):
        assert vectors(servers[name], texts) + vectors(servers[name], lists) == expected
    assert [vectors(servers["workers"], each)[0] for each in inputs] == expected


def test_truncated_inputs_are_vllms(servers: dict[str, httpx.Client]) -> None:
    """On both sides, to any length."""
    both = servers["vllm"], servers["workers"]
    long = " ".join(WORDS * 40)
    for length in (-1, 1, 2, 3, 17, 256):
        for side in ({}, {"truncation_side": "left"}, {"truncation_side": "right"}):
            options = {"truncate_prompt_tokens": length, **side}
            for given in (long, list(range(1000, 1300)), "short"):  # alone: a token is not computed as many are
                assert vectors(both[1], given, **options) == vectors(both[0], given, **options)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("endianness", ["native", "big", "little"])
def test_every_encoding_is_vllms(both: tuple[httpx.Client, httpx.Client], dtype: str, endianness: str) -> None:
    """Byte by byte: base64 and both forms of bytes; numbers in JSON are equal as doubles."""
    options = {"embed_dtype": dtype, "endianness": endianness}
    for encoding in ("base64", "bytes", "bytes_only", "float"):
        body = {"model": EMBEDDING_MODEL_NAME, "input": ["hello", "wide world"], "encoding_format": encoding, **options}
        theirs, own = (client.post("/v1/embeddings", json=body) for client in both)
        if encoding in ("base64", "float"):
            assert own.json()["data"] == theirs.json()["data"]
            assert {**own.json(), "id": 0, "created": 0}.keys() == theirs.json().keys()
            assert own.json()["usage"].items() >= theirs.json()["usage"].items()
        else:
            assert own.content == theirs.content
            assert ("metadata" in own.headers) == ("metadata" in theirs.headers)


@pytest.mark.parametrize(
    "body",
    [
        {"input": []},
        {"input": "x", "dimensions": 8},
        {"input": "x " * 400},
        {"input": [1] * 300},
        {"input": [[1], []]},
        {"input": [40_000]},
        {"input": "x", "truncate_prompt_tokens": 1000},
        {"input": "x", "normalize": True},
    ],
)
def test_errors_are_vllms(both: tuple[httpx.Client, httpx.Client], body: dict[str, Any]) -> None:
    """With the same status; the message is that of vLLM, which may add the parameter to it."""
    theirs, own = (client.post("/v1/embeddings", json={"model": EMBEDDING_MODEL_NAME, **body}) for client in both)

    assert own.status_code == theirs.status_code == 400
    shared = own.json()["error"]["message"].partition(" (")[0].partition(".")[0]
    assert shared in theirs.json()["error"]["message"], theirs.text


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/score", {"queries": "a quick fox", "documents": ["the lazy dog", "a fox that is quick", ""]}),
        ("/score", {"text_1": ["cat", "dog"], "text_2": ["kitten", "puppy"]}),
        ("/rerank", {"query": "a quick fox", "documents": ["the lazy dog", "a fox that is quick", "x"], "top_n": 2}),
        ("/rerank", {"query": "brown fox jumps", "documents": ["fox in socks"], "max_tokens_per_doc": 1}),
        ("/v2/embed", {"texts": ["hello", "wide world"], "embedding_types": ["float", "binary", "ubinary", "base64"]}),
        ("/v2/embed", {"texts": ["hello wide world"], "max_tokens": 3, "truncate": "START"}),
        ("/pooling", {"input": ["hello", "wide world"]}),
    ],
)
def test_other_routes_are_vllms(both: tuple[httpx.Client, httpx.Client], path: str, body: dict[str, Any]) -> None:
    """Scores to a millionth and in the same order, and everything else as it is, but for ids and times."""
    theirs, own = (client.post(path, json={"model": EMBEDDING_MODEL_NAME, **body}).json() for client in both)

    assert stable_fields(own) == stable_fields(theirs)
    assert numbers_of(own) == pytest.approx(numbers_of(theirs), abs=1e-6)
