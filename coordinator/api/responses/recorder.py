"""Records responses in their store, with what continues them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tokenwire.coordinator.api.json_text import json_bytes
from tokenwire.coordinator.api.openai.chat import ChatCall
from tokenwire.coordinator.api.responses.continuation import Continued
from tokenwire.coordinator.api.responses.input_items import with_ids
from tokenwire.coordinator.api.responses.request import ResponsesRequest
from tokenwire.coordinator.api.responses.response import Status, response_pieces
from tokenwire.coordinator.auth.caller import Caller
from tokenwire.coordinator.response_store.store import ResponseKey, ResponseStore
from tokenwire.coordinator.response_store.stored_response import StoredResponse


@dataclass(frozen=True, slots=True)
class Recorder:
    """Puts the states of one response into the store."""

    store: ResponseStore
    caller: Caller
    id: str
    conversation_id: str
    background: bool
    continued: Continued
    input: bytes

    @classmethod
    def of(
        cls, store: ResponseStore, body: ResponsesRequest, call: ChatCall, caller: Caller, continued: Continued
    ) -> "Recorder":
        """Return the recorder of a call that is about to start."""
        request = call.prepared.request
        return cls(
            store,
            caller,
            request.request_id,
            request.conversation_id or continued.conversation_id,
            bool(body.background),
            continued,
            json_bytes(with_ids(body.input)),
        )

    @property
    def key(self) -> ResponseKey:
        """The key of the response."""
        return self.caller.tenant, self.id

    def put(self, response: Mapping[str, Any], events: bytes | None = None, first_event: int = 0) -> None:
        """Store a state of the response."""
        self.put_encoded(response["status"], b"".join(response_pieces(response)), events, first_event)

    def put_encoded(self, status: Status, body: bytes, events: bytes | None = None, first_event: int = 0) -> None:
        """Store a state of the response that is given as JSON."""
        stored = StoredResponse(
            self.id,
            self.caller.tenant,
            self.caller.share,
            status,
            self.conversation_id,
            body,
            self.input,
            self.background,
            self.continued.chain,
            self.continued.context_bytes + len(body) + len(self.input),
            events,
            first_event,
        )
        self.store.put(stored)
