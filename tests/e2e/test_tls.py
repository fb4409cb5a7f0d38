"""TLS end to end: HTTPS for the OpenAI client, and rotation of peer certificates under running streams."""

import asyncio
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import AsyncOpenAI, DefaultAsyncHttpxClient, DefaultHttpxClient, OpenAI

from tests.certificates import Authority, certify_peers, peer_options
from tests.processes import Process, running

STREAMS, TOKENS = 60, 400


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A place for certificates and logs."""
    return tmp_path_factory.mktemp("tls")


@pytest.fixture(scope="module")
def worker(folder: Path) -> Iterator[tuple[Process, str]]:
    """The address of a worker that requires certificates."""
    certify_peers(folder, Authority("peer authority"))
    arguments = ["worker", "--engine", "sim", "--sim-step-ms", "20", "--listen", "127.0.0.1:0"]
    with running([*arguments, *peer_options(folder, "worker")], folder, "worker") as process:
        yield process, process.wait_for(r"ready: .* on (\S+)")[1]


@pytest.fixture(scope="module")
def url(worker: tuple[Process, str], authority: Authority, folder: Path) -> Iterator[str]:
    """Two coordinator processes that share an HTTPS port."""
    front = authority.issue(folder, "front", names=["127.0.0.1"])
    arguments = ["coordinator", "--port", "0", "--processes", "2", "--worker", worker[1]]
    https = ["--ssl-certfile", str(front.cert), "--ssl-keyfile", str(front.key)]
    with running([*arguments, *https, *peer_options(folder, "coordinator")], folder, "coordinator") as process:
        yield process.wait_for(r"tokenwire is ready: (https://\S+)")[1]
        assert "--cacert CA.pem https://" in process.log


def trusting(*authorities: Authority) -> ssl.SSLContext:
    """Return the client's trust settings."""
    return ssl.create_default_context(cadata="".join(authority.pem.decode() for authority in authorities))


def test_the_openai_client_uses_https(url: str, authority: Authority) -> None:
    """Streamed and not, if it trusts the authority; connections without TLS are rejected."""
    body: Any = {"model": "simulated", "prompt": "Hi", "max_tokens": 20, "temperature": 0}
    http = DefaultHttpxClient(verify=trusting(authority))
    with OpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0, http_client=http) as client:
        full = client.completions.create(**body).choices[0].text
        streamed = "".join(chunk.choices[0].text for chunk in client.completions.create(**body, stream=True))
    assert streamed == full

    with pytest.raises(httpx.TransportError):
        httpx.get(url.replace("https", "http"))
    with pytest.raises(httpx.ConnectError, match="certificate"):
        httpx.get(f"{url}/health", verify=trusting(Authority("another")))


async def test_rotation_drops_no_stream(
    url: str, worker: tuple[Process, str], authority: Authority, folder: Path
) -> None:
    """Every certificate and authority is exchanged while streams run: all of them end as they should, and so do
    requests of new connections and of a coordinator that starts with the new certificates."""
    following, signing = Authority("next front authority"), Authority("next peer authority")
    started = asyncio.Event()
    running_streams = 0

    async def stream(client: AsyncOpenAI) -> int:
        nonlocal running_streams
        chunks = await client.completions.create(
            model="simulated",
            prompt="Hi",
            max_tokens=TOKENS,
            stream=True,
            stream_options={"include_usage": True},
            extra_body={"ignore_eos": True, "stream_interval": 20},
        )
        tokens = -1
        async for chunk in chunks:
            if tokens < 0:
                tokens, running_streams = 0, running_streams + 1
                if running_streams == STREAMS:
                    started.set()
            if chunk.usage is not None:
                tokens = chunk.usage.completion_tokens
        return tokens

    transport = DefaultAsyncHttpxClient(verify=trusting(authority))
    async with AsyncOpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0, http_client=transport) as client:
        streams = [asyncio.create_task(stream(client)) for _ in range(STREAMS)]
        async with asyncio.timeout(60):
            await started.wait()
        _exchange(folder, following, signing)
        late = await _get(url, following)
        assert not any(task.done() for task in streams), "the exchange came too late to mean anything"
        assert await asyncio.gather(*streams) == [TOKENS] * STREAMS
    assert late == 200
    arguments = ["coordinator", "--port", "0", "--worker", worker[1], *peer_options(folder, "coordinator")]
    with running(arguments, folder, "newcomer") as newcomer:
        newcomer.wait_for(r"tokenwire is ready")


def _exchange(folder: Path, front: Authority, signing: Authority) -> None:
    (new := folder / "new front").mkdir()
    front.issue(new, "front", names=["127.0.0.1"])
    for file in new.iterdir():
        file.rename(folder / file.name)
    certify_peers(folder, signing)


async def _get(url: str, authority: Authority) -> int:
    async with httpx.AsyncClient(verify=trusting(authority)) as client:
        answer = await client.post(f"{url}/v1/completions", json={"prompt": "Hi", "max_tokens": 3}, timeout=30)
    return answer.status_code
