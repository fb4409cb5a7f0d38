"""The routes of stored responses, without a server; tests/e2e/test_stored_responses.py uses them over HTTP."""

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from tests.coordinator.fakes import request_context
from tests.coordinator.response_store.responses import RESPONSE
from tokenwire.coordinator.api.responses.background import BackgroundResponses
from tokenwire.coordinator.api.responses.continuation import parsed_items
from tokenwire.coordinator.api.responses.stored_routes import StoredResponses, stored_routes
from tokenwire.coordinator.api.router import ApiRoute
from tokenwire.coordinator.auth.caller import Caller
from tokenwire.coordinator.fleet.placed_memory import PlacedMemory
from tokenwire.coordinator.generation.context import CONTEXT
from tokenwire.coordinator.generation.service import GenerationService
from tokenwire.coordinator.http.backpressure import BodyBudget, BodyMemory
from tokenwire.coordinator.response_store.settings import ResponseStoreSettings
from tokenwire.coordinator.response_store.store import MemoryResponseStore, ResponseKey
from tokenwire.coordinator.response_store.stored_response import StoredResponse
from tokenwire.errors import InvalidRequest, NotFound, Unavailable

KEY = ("acme", "resp_1")
RUNNING = replace(
    RESPONSE, status="in_progress", background=True, body=b'{"id":"resp_1","status":"in_progress","output":[]}'
)


class UnreadReply:
    """A client that asks a route for the response, and reads none of it at first."""

    def __init__(self, route: ApiRoute) -> None:
        self.context = request_context(caller=Caller("acme", share="acme"))
        self.parts: list[bytes] = []
        self.begun, self.may_read = asyncio.Event(), asyncio.Event()
        """`begun`: the reply has begun, or failed."""
        scope = {"type": "http", "method": "GET", "headers": [], "query_string": b"", CONTEXT: self.context}
        responding = route.app({**scope, "path_params": {"response_id": "resp_1"}}, self._receive, self._send)
        self.task = asyncio.ensure_future(responding)
        self.task.add_done_callback(lambda _: self.begun.set())

    async def _receive(self) -> Any:
        raise AssertionError("it has no body")

    async def _send(self, message: Any) -> None:
        self.begun.set()
        await self.may_read.wait()
        self.parts.append(message.get("body", b""))


class OtherProcess(MemoryResponseStore):
    """A store that another process shares, which runs a response until it is told to stop."""

    def __init__(self, *, alive: bool = True, then: str = "cancelled") -> None:
        super().__init__(2**20, 60.0)
        self.alive = alive
        self.then = then
        self.put(RUNNING)

    async def runs(self, key: ResponseKey) -> bool:
        """Return whether the other process is there."""
        return self.alive

    async def stop(self, key: ResponseKey) -> None:
        """Stop it."""
        self.put(replace(RUNNING, status=self.then, body=b'{"status":"cancelled"}'))


def responses_in(store: MemoryResponseStore) -> StoredResponses:
    """Return the responses of a process that runs none itself."""
    generation: GenerationService = None  # type: ignore[assignment]
    return StoredResponses(BackgroundResponses(generation, store, ResponseStoreSettings(enabled=True)))


async def test_what_another_process_runs_is_in_progress() -> None:
    """It is cancelled there."""
    responses = responses_in(OtherProcess())

    assert json.loads(await responses.current(KEY))["status"] == "in_progress"
    assert json.loads(await responses.cancel(KEY))["status"] == "cancelled"


async def test_what_a_lost_process_ran_has_failed() -> None:
    """It says why, and a cancel says the same; its events are lost."""
    responses = responses_in(OtherProcess(alive=False))

    lost = json.loads(await responses.current(KEY))
    assert (lost["status"], lost["error"]["code"]) == ("failed", "server_error")
    with pytest.raises(InvalidRequest, match="was lost") as raised:
        await responses.log_of(KEY)
    assert raised.value.param == "stream"


async def test_a_deleted_response_is_no_longer_found() -> None:
    """The error says why that may be."""
    responses = responses_in(OtherProcess())
    await responses.delete(KEY)

    for use in (responses.current, responses.delete, responses.cancel, responses.log_of):
        with pytest.raises(NotFound, match="was deleted, or has been dropped"):
            await use(KEY)
    with pytest.raises(NotFound, match="was deleted, or has been dropped"):
        await responses.input_texts(KEY)


async def test_the_input_of_a_conversation_with_a_gap_is_not_listed() -> None:
    """A part of it would look like all of it."""
    store = MemoryResponseStore(2**20, 60.0)
    response: StoredResponse = replace(RESPONSE, chain=("resp_0",))
    store.put(response)

    with pytest.raises(NotFound, match="continues 'resp_0'"):
        await responses_in(store).input_texts(KEY)


async def test_the_input_of_a_long_conversation_is_charged_as_a_body_is() -> None:
    """Until it is answered."""
    store = MemoryResponseStore(2**20, 60.0)
    given = json.dumps([{"type": "message", "role": "user", "content": "x" * 100_000}]).encode()
    store.put(replace(RESPONSE, id="resp_0", input=given))
    store.put(replace(RESPONSE, chain=("resp_0",)))
    memory = BodyMemory(BodyBudget())

    assert len(await parsed_items(await responses_in(store).input_texts(KEY), memory)) == 1
    assert memory.held_bytes > 100_000
    memory.release()


@pytest.mark.parametrize("path", ["", "/input_items"])
async def test_large_replies_count_until_they_are_sent(path: str) -> None:
    """Who reads slowly takes no more than is allowed for all replies, and keeps no bodies waiting."""
    store, memory = MemoryResponseStore(2**24, 60.0), PlacedMemory(2**23, lambda: None)
    given = {"type": "message", "role": "user", "id": "msg_1", "content": "x" * 700_000}
    body = {"instructions": given["content"], "output": []}
    store.put(replace(RESPONSE, input=json.dumps([given]).encode(), body=json.dumps(body).encode()))
    generation: GenerationService = None  # type: ignore[assignment]
    background = BackgroundResponses(generation, store, ResponseStoreSettings(enabled=True))
    routes = stored_routes(background, memory).routes
    (route,) = (each for each in routes if each.path.endswith(f"_id}}{path}") and "GET" in each.methods)

    readers = [UnreadReply(route) for _ in range(20)]
    for reader in readers:
        await reader.begun.wait()

    refused = [reader.task.exception() for reader in readers if reader.task.done()]
    slow = [reader for reader in readers if not reader.task.done()]
    assert slow
    assert refused
    assert all(isinstance(each, Unavailable) for each in refused)
    assert memory.held_bytes >= 700_000 * len(slow)
    assert [reader.context.body.held_bytes for reader in slow] == [0] * len(slow)
    for reader in slow:
        reader.may_read.set()
        await reader.task
        assert max(map(len, reader.parts)) < 300_000
        assert len(b"".join(reader.parts)) > 700_000
