"""What a request continues: the items of a stored response, and of all before it."""

import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tokenwire.coordinator.api.body_shape import check_shape
from tokenwire.coordinator.api.json_body import parse_json, parse_json_in_turns
from tokenwire.coordinator.generation.context import RequestContext
from tokenwire.coordinator.response_store.store import ResponseStore
from tokenwire.coordinator.response_store.stored_response import StoredResponse
from tokenwire.errors import InvalidRequest, PreviousNotFound

PARAM = "previous_response_id"
_LARGE_BYTES = 64 * 1024
DROPPED = (
    "It was never stored here, was deleted, or has been dropped: responses are kept for a limited time and within "
    "limited memory."
)
"""Why a response is not found."""


@dataclass(frozen=True, slots=True)
class Continued:
    """A conversation up to a request."""

    conversation_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    items: Sequence[dict[str, Any]] = ()
    """The inputs and outputs of the responses before."""
    chain: tuple[str, ...] = ()
    """Their ids, the first one first."""
    context_bytes: int = 0
    """Their size."""


async def continue_after(store: ResponseStore, previous_id: str | None, context: RequestContext) -> Continued:
    """Return what a request continues. Raises PreviousNotFound, InvalidRequest or Unavailable."""
    if previous_id is None:
        return Continued()
    tenant = context.caller.tenant
    (previous,) = await store.find([(tenant, previous_id)])
    if previous is None:
        raise PreviousNotFound(f"Previous response with id '{previous_id}' not found. {DROPPED}", param=PARAM)
    _check(previous, context.body.budget.max_body_bytes)
    earlier = await store.find([(tenant, each) for each in previous.chain]) if previous.chain else ()
    for id_, response in zip(previous.chain, earlier, strict=True):
        if response is None:
            message = f"Previous response with id '{previous_id}' continues '{id_}', which is not found. {DROPPED}"
            raise PreviousNotFound(message, param=PARAM)
    responses = [*(each for each in earlier if each is not None), previous]
    return Continued(
        previous.conversation_id,
        await _items(responses, context),
        (*previous.chain, previous.id),
        previous.context_bytes,
    )


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


async def _items(responses: Sequence[StoredResponse], context: RequestContext) -> list[dict[str, Any]]:
    """Return the items of responses, within the memory for bodies: they are as good as sent with the request."""
    memory, total = context.body, sum(len(each.input) + len(each.body) for each in responses)
    if total <= _LARGE_BYTES:
        return [item for each in responses for item in (*parse_json(each.input), *parse_json(each.body)["output"])]
    memory.end_turn()  # nobody waits for memory in a turn
    for each in responses:
        await memory.add(await check_shape(each.input) + await check_shape(each.body))
    await memory.begin_turn(total)
    items: list[dict[str, Any]] = []
    for each in responses:
        items += await parse_json_in_turns(each.input, memory.budget.turn)
        items += (await parse_json_in_turns(each.body, memory.budget.turn))["output"]
    return items


def items_of(response: StoredResponse) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the items of a response's input and output."""
    return json.loads(response.input), json.loads(response.body)["output"]
