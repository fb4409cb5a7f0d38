"""What a request continues: the items of a stored response, and of all before it."""

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tokenwire.coordinator.api.body_shape import check_shape
from tokenwire.coordinator.api.call_arguments import check_arguments
from tokenwire.coordinator.api.json_body import parse_json, parse_json_in_turns
from tokenwire.coordinator.generation.context import RequestContext
from tokenwire.coordinator.http.backpressure import SMALL_BYTES, BodyMemory
from tokenwire.coordinator.response_store.store import ResponseStore
from tokenwire.coordinator.response_store.stored_response import StoredResponse
from tokenwire.errors import InvalidRequest, PreviousNotFound

PARAM = "previous_response_id"
DROPPED = (
    "It was never stored here, was deleted, or has been dropped: responses are kept for a limited time and within "
    "limited memory."
)
"""Why a response is not found."""


@dataclass(frozen=True, slots=True)
class Continued:
    """A conversation up to a request."""

    conversation_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    chain: tuple[str, ...] = ()
    """The ids of the responses before, the first one first."""
    context_bytes: int = 0
    """Their size."""


async def continue_after(
    store: ResponseStore, previous_id: str | None, context: RequestContext
) -> tuple[Continued, Sequence[dict[str, Any]]]:
    """Return what a request continues, and the inputs and outputs of the responses before.

    Raises PreviousNotFound, InvalidRequest or Unavailable.
    """
    if previous_id is None:
        return Continued(), ()
    tenant = context.caller.tenant
    (previous,) = await store.find([(tenant, previous_id)])
    if previous is None:
        raise PreviousNotFound(f"Previous response with id '{previous_id}' not found. {DROPPED}", param=PARAM)
    _check(previous, context.body.budget.max_body_bytes)
    turns, missing = await conversation_up_to(store, previous)
    if missing is not None:
        message = f"Previous response with id '{previous_id}' continues '{missing}', which is not found. {DROPPED}"
        raise PreviousNotFound(message, param=PARAM)
    items = await parsed_items([text for turn in turns for text in (turn.input, turn.body)], context.body)
    return Continued(previous.conversation_id, (*previous.chain, previous.id), previous.context_bytes), items


async def check_new(store: ResponseStore, tenant: str, response_id: str) -> None:
    """Check that no response of this id is stored, which others may continue. Raises InvalidRequest or Unavailable."""
    (known,) = await store.find([(tenant, response_id)])
    if known is not None:
        raise InvalidRequest(
            f"A response with the id {response_id!r} is stored already: its end is the request's id (X-Request-Id), "
            "so each request needs one of its own, or none.",
            param="request_id",
        )


async def conversation_up_to(store: ResponseStore, last: StoredResponse) -> tuple[Sequence[StoredResponse], str | None]:
    """Return the responses of a conversation, and the id of the first one that is missing, if one is.

    Raises Unavailable.
    """
    earlier = await store.find([(last.tenant, each) for each in last.chain]) if last.chain else ()
    missing = next((id_ for id_, each in zip(last.chain, earlier, strict=True) if each is None), None)
    return [*(each for each in earlier if each is not None), last], missing


async def parsed_items(texts: Sequence[bytes], memory: BodyMemory) -> list[dict[str, Any]]:
    """Return the items of stored inputs and responses, within the memory for bodies: they are as good as sent.

    Raises Unavailable, and InvalidRequest for too many items.
    """
    total = sum(map(len, texts))
    if total <= SMALL_BYTES:
        return [item for text in texts for item in _items_in(parse_json(text))]
    memory.end_turn()  # nobody waits for memory in a turn
    with _counted_again():
        size = await check_shape(*texts, give_way=memory.budget.give_way)
    await memory.add(size)
    await memory.begin_turn(total)
    items: list[dict[str, Any]] = []
    for text in texts:
        items += _items_in(await parse_json_in_turns(text, memory.budget.turn))
    with _counted_again():
        await check_arguments({"input": items})
    return items


@contextmanager
def _counted_again() -> Iterator[None]:
    try:
        yield
    except InvalidRequest as error:
        raise InvalidRequest(f"What is continued counts as if it were sent again. {error.message}") from None


def _check(previous: StoredResponse, max_bytes: int | None) -> None:
    if not previous.can_be_continued:
        state = f"ended as {previous.status}" if previous.has_ended else f"is still {previous.status}"
        message = f"Previous response with id '{previous.id}' {state}, so it cannot be continued."
        raise InvalidRequest(message, param=PARAM)
    if max_bytes is not None and previous.context_bytes > max_bytes:
        message = (
            f"The conversation up to response '{previous.id}' has {previous.context_bytes} bytes: more than a request "
            f"may have, {max_bytes}."
        )
        raise InvalidRequest(message, param=PARAM)


def _items_in(parsed: Any) -> list[dict[str, Any]]:
    """Return the items of an input, which is a list of them, or of a response."""
    items: list[dict[str, Any]] = parsed["output"] if isinstance(parsed, dict) else parsed
    return items
