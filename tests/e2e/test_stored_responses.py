"""Stored responses with the real `openai` client and real processes.

One file, since all tests share a service that stores responses.
"""

import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import APIStatusError, BadRequestError, NotFoundError, OpenAI, RateLimitError

from tests.ports import free_port
from tests.processes import Service, coordinator, simulated_service
from tests.redis_server import redis_server

STORE = "--enable-responses-store"
LONG: dict[str, Any] = {"max_output_tokens": 2000, "extra_body": {"ignore_eos": True}, "background": True}
KEYS = "tenant sesame\nother open\n"


@pytest.fixture(scope="module")
def storing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service that stores the responses of two tenants, and runs up to four in the background."""
    folder = tmp_path_factory.mktemp("storing")
    (folder / "keys").write_text(KEYS)
    options = (STORE, "--max-background-responses", "4", "--api-keys-file", str(folder / "keys"))
    worker = ("--sim-step-ms", "2", "--sim-max-model-len", "4096", "--served-model-name", "sim")
    with simulated_service(folder, *worker, coordinator_options=options) as started:
        yield started
        assert "Traceback" not in started.coordinator.log, started.coordinator.log


@pytest.fixture(scope="module")
def client(storing: Service) -> Iterator[OpenAI]:
    """The client of one tenant."""
    with OpenAI(base_url=f"{storing.url}/v1", api_key="sesame", max_retries=0) as openai:
        yield openai


def created(client: OpenAI, given: Any = "Say something.", **options: Any) -> Any:
    """Create a response."""
    return client.responses.create(**{"model": "sim", "input": given, "max_output_tokens": 12, **options})


def polled(client: OpenAI, response_id: str, timeout_s: float = 20.0) -> Any:
    """Poll a response in the background until it has ended; return it."""
    return waited_for_end(lambda: client.responses.retrieve(response_id), timeout_s)


def waited_for_end(retrieve: Callable[[], Any], timeout_s: float = 20.0) -> Any:
    """Retrieve until the response has ended."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        response = retrieve()
        if response.status not in ("queued", "in_progress"):
            return response
        time.sleep(0.05)
    raise AssertionError(f"it is still {response.status}")


def test_a_response_is_retrieved_as_it_was(client: OpenAI) -> None:
    """Also a streamed one; not one with store: false."""
    full = created(client)
    streamed = list(created(client, stream=True))[-1].response
    unstored = created(client, store=False)

    assert full.store
    assert client.responses.retrieve(full.id) == full
    assert client.responses.retrieve(streamed.id) == streamed
    assert not unstored.store
    with pytest.raises(NotFoundError, match="was deleted, or has been dropped"):
        client.responses.retrieve(unstored.id)


def test_a_response_continues_another_from_its_ids(client: OpenAI, storing: Service) -> None:
    """The prompt is that of all items sent again, without the instructions of earlier requests."""
    first = created(client, "Hi.", instructions="Be brief.", temperature=0)
    second = created(client, "Go on.", previous_response_id=first.id, temperature=0)
    third = created(client, "And?", previous_response_id=second.id, temperature=0, instructions="Be long.")
    question: list[Any] = [{"role": "user", "content": text} for text in ("Hi.", "Go on.", "And?")]
    sent = [question[0], *first.output, question[1], *second.output, question[2]]
    resent = created(client, sent, temperature=0, instructions="Be long.", store=False)

    assert (second.previous_response_id, third.previous_response_id) == (first.id, second.id)
    assert third.output_text == resent.output_text
    assert third.usage.input_tokens == resent.usage.input_tokens


def test_prompts_of_a_chain_begin_with_earlier_ids(client: OpenAI, storing: Service) -> None:
    """Each one reuses all of the last prompt and its completion."""
    response = created(client)
    reused = []
    for _ in range(3):
        before, length = reused_tokens(storing), response.usage.total_tokens
        response = created(client, "More.", previous_response_id=response.id)
        reused.append(reused_tokens(storing) - before == length)

    assert all(reused)


def reused_tokens(service: Service) -> float:
    """Return how many prompt tokens came from earlier ids."""
    lines = httpx.get(f"{service.url}/metrics").text.splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith("tokenwire_prompt_tokens_reused_total{"))


def test_the_input_is_listed_in_pages(client: OpenAI) -> None:
    """Of the whole conversation, the newest first."""
    first = created(client, [{"role": "user", "content": "One."}, {"role": "user", "content": "Two."}])
    second = created(client, "Three.", previous_response_id=first.id)

    pages = client.responses.input_items.list(second.id, limit=3)
    newest = list(pages)
    oldest = client.responses.input_items.list(second.id, order="asc", limit=1)

    assert [item.role for item in newest] == ["user", "assistant", "user", "user"]  # type: ignore[union-attr]
    assert newest[0].content[0].text == "Three."  # type: ignore[union-attr,index]
    assert newest[1].id == first.output[0].id
    assert (oldest.data[0].id, oldest.has_more) == (newest[-1].id, True)
    for options, named in (({"after": "msg_1"}, "after"), ({"limit": 0}, "limit"), ({"order": "up"}, "order")):
        with pytest.raises(BadRequestError, match=named):
            client.responses.input_items.list(second.id, **options)


def test_a_deleted_response_is_gone(client: OpenAI) -> None:
    """And with it what continues it, which can only be read."""
    first = created(client)
    second = created(client, previous_response_id=first.id)

    client.responses.delete(first.id)

    for again in (client.responses.retrieve, client.responses.delete):
        with pytest.raises(NotFoundError):
            again(first.id)
    assert client.responses.retrieve(second.id).output_text == second.output_text
    with pytest.raises(BadRequestError) as raised:
        created(client, previous_response_id=second.id)
    assert (raised.value.code, raised.value.param) == ("previous_response_not_found", "previous_response_id")


def test_a_foreign_or_unknown_response_is_not_found(client: OpenAI, storing: Service) -> None:
    """With OpenAI's code of it, which clients match."""
    response = created(client)
    with OpenAI(base_url=f"{storing.url}/v1", api_key="open", max_retries=0) as other:
        for id_ in (response.id, "resp_unknown"):
            with pytest.raises(BadRequestError) as raised:
                created(other, previous_response_id=id_)
            assert (raised.value.code, raised.value.param) == ("previous_response_not_found", "previous_response_id")
            for use in (other.responses.retrieve, other.responses.delete, other.responses.cancel):
                with pytest.raises(NotFoundError):
                    use(id_)


def test_a_response_in_the_background_is_polled(client: OpenAI) -> None:
    """It ends as one in the foreground does."""
    started = created(client, background=True, temperature=0)
    response = polled(client, started.id)

    assert started.status in ("queued", "in_progress")
    assert started.background
    assert response.output_text == created(client, temperature=0).output_text
    assert response.usage.output_tokens == 12


def test_a_stream_in_the_background_is_resumed(client: OpenAI) -> None:
    """Its client leaves, it goes on, and all events come once more, from any number on."""
    numbers = []
    with created(client, background=True, stream=True, max_output_tokens=300) as stream:
        for event in stream:
            numbers.append(event.sequence_number)
            if event.type == "response.created":
                response_id = event.response.id
            if len(numbers) == 20:
                break
    rest = list(client.responses.retrieve(response_id, stream=True, starting_after=numbers[-1]))
    again = list(client.responses.retrieve(response_id, stream=True))

    assert numbers + [event.sequence_number for event in rest] == [event.sequence_number for event in again]
    assert again[-1].type == "response.incomplete"
    assert again[-1].response.usage.output_tokens == 300  # type: ignore[union-attr]
    assert client.responses.retrieve(response_id) == again[-1].response


def test_a_response_in_the_background_is_cancelled(client: OpenAI, storing: Service) -> None:
    """Its generation ends, and a second cancel changes nothing; one in the foreground cannot be cancelled."""
    started = created(client, **LONG)
    with pytest.raises(BadRequestError, match=r"is still (queued|in_progress)") as raised:
        created(client, previous_response_id=started.id)
    assert raised.value.param == "previous_response_id"

    cancelled = client.responses.cancel(started.id)

    storing.wait_slots(0)
    assert cancelled.status == "cancelled"
    assert client.responses.cancel(started.id).status == client.responses.retrieve(started.id).status == "cancelled"
    with pytest.raises(BadRequestError, match="synchronous"):
        client.responses.cancel(created(client).id)


def test_a_cancelled_stream_ends(client: OpenAI) -> None:
    """With the items so far in its response."""
    stream = created(client, stream=True, **LONG)
    response_id = next(iter(stream)).response.id
    client.responses.cancel(response_id)

    assert len(list(stream)) < 2000
    assert client.responses.retrieve(response_id).status == "cancelled"


def test_one_tenant_may_have_half_of_the_background(client: OpenAI, storing: Service) -> None:
    """The rest is for others."""
    running = [created(client, **LONG) for _ in range(2)]
    with pytest.raises(RateLimitError, match="in the background"):
        created(client, **LONG)
    with OpenAI(base_url=f"{storing.url}/v1", api_key="open", max_retries=0) as other:
        other.responses.cancel(created(other, **LONG).id)
    for each in running:
        client.responses.delete(each.id)  # which ends it

    storing.wait_slots(0)
    assert polled(client, created(client, background=True).id).status == "incomplete"


def test_a_response_in_the_background_ends_at_its_deadline(client: OpenAI) -> None:
    """It has failed, and says why."""
    started = created(client, extra_headers={"X-Request-Timeout": "0.2"}, **LONG)
    response = polled(client, started.id)

    assert response.status == "failed"
    assert "timed out after 0.2 s" in response.error.message


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"background": True, "store": False}, "background"),
        ({"previous_response_id": "x" * 513}, "previous_response_id"),
        ({"previous_response_id": 5}, "previous_response_id"),
        ({"background": "later"}, "background"),
    ],
)
def test_invalid_fields_are_named(client: OpenAI, options: dict[str, Any], param: str) -> None:
    """By a 400."""
    with pytest.raises(BadRequestError) as raised:
        created(client, extra_body=options)
    assert raised.value.param == param


@pytest.mark.npm
def test_coordinators_share_responses_by_redis(storing: Service, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Made at one, they are retrieved, continued, cancelled and deleted at the other; what a drain ends has failed."""
    monkeypatch.setenv("TOKENWIRE_RESPONSES_STORE_PASSWORD", "between us")
    port = free_port()
    options = (STORE, "--responses-store", f"redis://127.0.0.1:{port}", "--drain-timeout", "1")
    (folder / "a").mkdir()
    (folder / "b").mkdir()
    with (
        redis_server(port, "between us"),
        coordinator(folder / "a", storing.addresses, *options) as (one, first_url),
        coordinator(folder / "b", storing.addresses, *options) as (other, second_url),
        OpenAI(base_url=f"{first_url}/v1", api_key="x", max_retries=0) as first,
        OpenAI(base_url=f"{second_url}/v1", api_key="x", max_retries=0) as second,
    ):
        response = created(first)
        assert second.responses.retrieve(response.id) == response
        continued = created(second, previous_response_id=response.id)
        assert created(first, previous_response_id=continued.id).previous_response_id == continued.id
        second.responses.delete(response.id)
        with pytest.raises(NotFoundError):
            first.responses.retrieve(response.id)

        streamed = created(first, background=True, stream=True, max_output_tokens=50)
        response_id = next(iter(streamed)).response.id
        events = list(second.responses.retrieve(response_id, stream=True))
        assert events[-1].type == "response.incomplete"

        running = created(first, **LONG)
        assert second.responses.retrieve(running.id).status == "in_progress"
        assert second.responses.cancel(running.id).status == "cancelled"
        assert waited_for_end(lambda: first.responses.retrieve(running.id)).status == "cancelled"

        running = created(first, **LONG)
        one.signal(signal.SIGTERM)
        assert one.wait_exit() == 0
        drained = waited_for_end(lambda: second.responses.retrieve(running.id))
        assert (drained.status, drained.error.code) == ("failed", "server_error")
        assert "shut down" in drained.error.message
        assert "between us" not in one.log + other.log


@pytest.mark.npm
def test_a_failing_redis_loses_no_reply(storing: Service, folder: Path) -> None:
    """What this coordinator stored itself is found; else it says that it cannot know."""
    options = (STORE, "--responses-store", f"redis://127.0.0.1:{free_port()}")
    with (
        coordinator(folder, storing.addresses, *options) as (process, url),
        OpenAI(base_url=f"{url}/v1", api_key="x", max_retries=0) as client,
    ):
        response = created(client)
        assert created(client, previous_response_id=response.id).previous_response_id == response.id
        assert polled(client, created(client, background=True).id).status == "incomplete"
        with pytest.raises(APIStatusError) as raised:
            created(client, previous_response_id="resp_unknown")
        assert raised.value.status_code == 503
        assert "Traceback" not in process.log
