"""Clients that disconnect, or read slowly or never: the engine stops computing for them, and others are unaffected."""

import base64
import json
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tokenizers import Tokenizer

from tests.coordinator.media.pictures import png
from tests.e2e.bare_streams import send_unread
from tests.e2e.scripted import write_model
from tests.processes import Service, simulated_service, worker_metrics
from tests.workers import until

CHAT = "/v1/chat/completions"


@pytest.fixture(scope="module")
def slow_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Run a service of this module alone, with slow steps and a slow prefill."""
    options = ("--sim-step-ms", "5", "--sim-prefill-rate", "1000")
    with simulated_service(tmp_path_factory.mktemp("slow_service"), *options) as service:
        yield service


@pytest.mark.parametrize("stream", [True, False])
def test_a_disconnect_mid_reply_aborts_at_once(slow_service: Service, stream: bool) -> None:
    """The sequences of a disconnected client are aborted, streamed or not."""
    connection = send_unread(slow_service.url, {"stream": stream, "n": 2, "max_tokens": 20_000})
    slow_service.wait_slots(2)

    connection.close()

    slow_service.wait_slots(0)
    tokens = slow_service.server_info().generated_tokens
    assert slow_service.server_info().generated_tokens == tokens


def test_a_disconnect_in_prefill_aborts_at_once(slow_service: Service) -> None:
    """A client that disconnects before the first token costs no further prefill."""
    before = slow_service.server_info().generated_tokens
    connection = send_unread(
        slow_service.url, {"stream": True, "messages": [{"role": "user", "content": "x" * 20_000}]}
    )
    slow_service.wait_slots(1)

    connection.close()

    slow_service.wait_slots(0)
    assert slow_service.server_info().generated_tokens == before


async def test_a_disconnect_while_a_picture_is_processed_ends_the_wait_for_it(folder: Path) -> None:
    """The worker knows at once that nobody waits for it any more."""
    picture = {"type": "image_url", "image_url": {"url": "data:;base64," + base64.b64encode(png()).decode()}}
    name = "tokenwire_worker_media_waiting"
    with simulated_service(folder, "--sim-image-tokens", "4", "--sim-image-ms", "600000") as service:

        def waiting() -> float:
            return worker_metrics(service.addresses[0], name)[name]

        connection = send_unread(service.url, {"messages": [{"role": "user", "content": [picture]}]})
        await until(lambda: waiting() == 1)

        connection.close()

        await until(lambda: waiting() == 0)


def test_a_disconnect_in_the_engines_queue_aborts_at_once(folder: Path) -> None:
    """It frees the sequence's place in the queue."""
    with simulated_service(folder, "--sim-max-num-seqs", "1") as service:
        first = send_unread(service.url, {"stream": True, "max_tokens": 20_000})
        service.wait_slots(1)
        second = send_unread(service.url, {"stream": True})
        service.wait_slots(2)

        second.close()

        service.wait_slots(1)
        first.close()
        service.wait_slots(0)


def test_a_stop_string_ends_the_engine_within_two_steps(folder: Path) -> None:
    """When a stop string matches, the reply ends at once and the engine makes at most two more steps for it."""
    script = folder / "script.json"
    script.write_text(json.dumps([ord(character) for character in "hello STOP and much more "]))
    with simulated_service(folder, "--sim-script", str(script), "--sim-step-ms", "20") as service:
        body = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 20_000, "stop": ["STOP"]}

        answer = httpx.post(service.url + CHAT, json=body, timeout=30).json()

        service.wait_slots(0)
        assert answer["choices"][0]["message"]["content"] == "hello "
        assert answer["usage"]["completion_tokens"] == 10
        assert service.server_info().generated_tokens <= 12


@pytest.fixture
def verbose(folder: Path) -> tuple[str, ...]:
    """Return options of a worker whose every token has 4,000 characters: few tokens fill a connection's buffers."""
    word = "x" * 3_999 + " "
    model = write_model(folder / "model", [word])
    script = folder / "script.json"
    script.write_text(json.dumps(Tokenizer.from_file(str(model / "tokenizer.json")).encode(word).ids))
    return str(model), "--sim-script", str(script), "--sim-max-model-len", "4000000"


@pytest.mark.slow
def test_a_client_that_does_not_read_gets_merged_chunks(folder: Path, verbose: tuple[str, ...]) -> None:
    """Steps that a client did not read are merged into few chunks; the text is complete and others are not delayed."""
    with simulated_service(folder, *verbose, "--sim-step-ms", "2") as service:
        slow = send_unread(service.url, {"stream": True, "max_tokens": 1000}, receive_buffer=4096)
        service.wait_slots(1)
        body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1000}

        full = httpx.post(service.url + CHAT, json=body, timeout=120).json()
        service.wait_slots(0, timeout_s=60)

        with slow:
            text, chunks = read_chat_stream(slow)
        assert text == full["choices"][0]["message"]["content"]
        assert chunks < 900


def test_a_client_that_never_reads_is_disconnected(folder: Path, verbose: tuple[str, ...]) -> None:
    """After the stall timeout, and its sequence is aborted."""
    options = ("--client-stall-timeout", "0.5")
    with simulated_service(folder, *verbose, "--sim-step-ms", "2", coordinator_options=options) as service:
        stalled = send_unread(service.url, {"stream": True, "max_tokens": 3_900_000}, receive_buffer=4096)
        service.wait_slots(1)

        service.wait_slots(0, timeout_s=60)

        with stalled:
            *_, last = iter(lambda: stalled.recv(65536), b"")
        assert not last.endswith(b"0\r\n\r\n")


def read_chat_stream(connection: socket.socket) -> tuple[str, int]:
    """Read a streamed reply to its end; return its text and the number of its events."""
    data = b""
    while not data.endswith(b"0\r\n\r\n"):
        part = connection.recv(65536)
        assert part, "the stream ended early"
        data += part
    events = [line[6:] for line in data.replace(b"\r\n", b"\n").split(b"\n") if line.startswith(b"data: {")]
    choices = [json.loads(event)["choices"][0] for event in events]
    return "".join(choice["delta"].get("content", "") for choice in choices), len(events)


def test_an_idle_service_has_no_slots(service: Service) -> None:
    """After all other tests, the shared service has no open slots."""
    for number in range(len(service.workers)):
        service.wait_slots(0, worker=number)


def test_a_client_that_is_too_far_behind_is_disconnected(folder: Path, verbose: tuple[str, ...]) -> None:
    """Data buffered for an unread stream is limited at any time; its sequence is aborted."""
    options = ("--max-backlog-mb", "1", "--client-stall-timeout", "600")
    with simulated_service(folder, *verbose, "--sim-step-ms", "2", coordinator_options=options) as service:
        with send_unread(service.url, {"stream": True, "max_tokens": 3_900_000}, receive_buffer=4096):
            service.wait_slots(1)
            service.wait_slots(0, timeout_s=60)

        answer = httpx.post(service.url + CHAT, json={"messages": [{"role": "user", "content": "x"}], "max_tokens": 2})
        assert answer.status_code == 200
