"""The routes of stored responses, without a server; tests/e2e/test_stored_responses.py uses them over HTTP."""

import json
from dataclasses import replace

import pytest

from tests.coordinator.response_store.responses import RESPONSE
from tokenwire.coordinator.api.responses.background import BackgroundResponses
from tokenwire.coordinator.api.responses.stored_routes import StoredResponses
from tokenwire.coordinator.generation.service import GenerationService
from tokenwire.coordinator.http.backpressure import BodyBudget, BodyMemory
from tokenwire.coordinator.response_store.settings import ResponseStoreSettings
from tokenwire.coordinator.response_store.store import MemoryResponseStore, ResponseKey
from tokenwire.coordinator.response_store.stored_response import StoredResponse
from tokenwire.errors import InvalidRequest, NotFound

KEY = ("acme", "resp_1")
RUNNING = replace(
    RESPONSE, status="in_progress", background=True, body=b'{"id":"resp_1","status":"in_progress","output":[]}'
)


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
        await responses.input_items(KEY, BodyMemory(BodyBudget()))


async def test_the_input_of_a_conversation_with_a_gap_is_not_listed() -> None:
    """A part of it would look like all of it."""
    store = MemoryResponseStore(2**20, 60.0)
    response: StoredResponse = replace(RESPONSE, chain=("resp_0",))
    store.put(response)

    with pytest.raises(NotFound, match="continues 'resp_0'"):
        await responses_in(store).input_items(KEY, BodyMemory(BodyBudget()))


async def test_the_input_of_a_long_conversation_is_charged_as_a_body_is() -> None:
    """Until it is answered."""
    store = MemoryResponseStore(2**20, 60.0)
    given = json.dumps([{"type": "message", "role": "user", "content": "x" * 100_000}]).encode()
    store.put(replace(RESPONSE, id="resp_0", input=given))
    store.put(replace(RESPONSE, chain=("resp_0",)))
    memory = BodyMemory(BodyBudget())

    assert len(await responses_in(store).input_items(KEY, memory)) == 1
    assert memory.held_bytes > 100_000
    memory.release()
