"""What a request with a previous response continues."""

import json
from dataclasses import replace

import pytest

from tests.coordinator.fakes import request_context
from tests.coordinator.response_store.responses import RESPONSE
from tokenwire.coordinator.api.responses.continuation import continue_after
from tokenwire.coordinator.auth.caller import Caller
from tokenwire.coordinator.generation.context import RequestContext
from tokenwire.coordinator.http.backpressure import BodyBudget, BodyMemory, BodySettings
from tokenwire.coordinator.response_store.store import MemoryResponseStore
from tokenwire.coordinator.response_store.stored_response import StoredResponse
from tokenwire.errors import InvalidRequest, PreviousNotFound


def stored_turn(number: int, size: int = 1, **fields: object) -> StoredResponse:
    """Return the response of a turn of a conversation."""
    given = json.dumps([{"type": "message", "role": "user", "content": f"{number}" * size}]).encode()
    body = json.dumps({"output": [{"type": "message", "role": "assistant", "content": f"re {number}"}]}).encode()
    chain = tuple(f"resp_{i}" for i in range(number))
    stored = replace(RESPONSE, id=f"resp_{number}", body=body, input=given, chain=chain, context_bytes=size)
    return replace(stored, **fields)  # type: ignore[arg-type]


def store_with_responses(*responses: StoredResponse) -> MemoryResponseStore:
    """Return a store with responses."""
    store = MemoryResponseStore(2**24, 60.0)
    for each in responses:
        store.put(each)
    return store


def context_of_tenant(tenant: str = "acme", max_bytes: int = 2**20) -> RequestContext:
    """Return the context of a tenant's request."""
    made = request_context(caller=Caller(tenant))
    made.body = BodyMemory(BodyBudget(BodySettings(max_bytes, 2**24)))
    return made


async def test_a_request_continues_all_turns_before() -> None:
    """Their items in order, their conversation, and their ids for the next one."""
    store = store_with_responses(stored_turn(0), stored_turn(1))
    continued, items = await continue_after(store, "resp_1", context_of_tenant())

    assert [item["content"] for item in items] == ["0", "re 0", "1", "re 1"]
    assert continued.chain == ("resp_0", "resp_1")
    assert continued.conversation_id == RESPONSE.conversation_id


async def test_a_request_without_a_previous_response_begins_a_conversation() -> None:
    """Of its own."""
    one, other = [await continue_after(store_with_responses(), None, context_of_tenant()) for _ in range(2)]

    assert one[0].conversation_id != other[0].conversation_id
    assert not one[1]


async def test_long_conversations_are_charged_as_bodies_are() -> None:
    """Until the request is submitted."""
    made = context_of_tenant()
    _, items = await continue_after(store_with_responses(stored_turn(0, size=100_000)), "resp_0", made)

    assert len(items) == 2
    assert made.body.held_bytes > 100_000
    made.body.release()
    assert not made.body.budget.held_bytes


@pytest.mark.parametrize(
    ("responses", "tenant", "said"),
    [
        ([], "acme", "not found"),
        ([stored_turn(0), stored_turn(1)], "other", "not found"),
        ([stored_turn(1)], "acme", "continues 'resp_0', which is not found"),
    ],
)
async def test_what_is_not_stored_cannot_be_continued(responses: list[StoredResponse], tenant: str, said: str) -> None:
    """The error has OpenAI's code, names the field, and says why it may be gone."""
    with pytest.raises(PreviousNotFound, match=said) as raised:
        await continue_after(store_with_responses(*responses), "resp_1", context_of_tenant(tenant))

    assert "has been dropped" in raised.value.message
    assert (raised.value.openai_code, raised.value.param) == ("previous_response_not_found", "previous_response_id")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"status": "in_progress"}, "is still in_progress"),
        ({"status": "failed"}, "ended as failed"),
        ({"context_bytes": 2**21}, "more than a request may have"),
    ],
)
async def test_what_has_no_reply_or_is_too_long_cannot_be_continued(fields: dict[str, object], said: str) -> None:
    """The error names the field."""
    with pytest.raises(InvalidRequest, match=said) as raised:
        await continue_after(store_with_responses(stored_turn(0, **fields)), "resp_0", context_of_tenant())  # type: ignore[arg-type]

    assert raised.value.param == "previous_response_id"


async def test_turns_before_have_no_more_parts_together_than_a_body() -> None:
    """Each by itself has few enough: all become one prompt."""
    message = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "x"}] * 60_000}
    turns = [stored_turn(number, input=json.dumps([message]).encode()) for number in range(3)]
    store, context = store_with_responses(*turns), context_of_tenant(max_bytes=2**25)

    assert len((await continue_after(store, "resp_0", context))[1]) == 2
    with pytest.raises(InvalidRequest, match=r"as if it were sent again\. The body has at least \d+ .*, more than"):
        await continue_after(store, "resp_2", context)


async def test_arguments_of_calls_before_have_no_more_parts_together_than_those_of_a_body() -> None:
    """They are parsed with those of the request."""
    call = {"type": "function_call", "call_id": "1", "name": "f", "arguments": "[" + "[]," * 60_000 + "[]]"}
    turns = [stored_turn(number, input=json.dumps([call]).encode()) for number in range(3)]
    store, context = store_with_responses(*turns), context_of_tenant(max_bytes=2**25)

    assert len((await continue_after(store, "resp_1", context))[1]) == 4
    with pytest.raises(InvalidRequest, match=r"as if it were sent again\. The arguments of tool calls .* more than"):
        await continue_after(store, "resp_2", context)
