"""Stored responses for tests."""

from dataclasses import replace

from tokenwire.coordinator.response_store.stored_response import StoredResponse

RESPONSE = StoredResponse("resp_1", "acme", "acme", "completed", "conversation", b'{"output":[]}', b"[]")


def response_of(id_: str, share: str = "acme", size: int = 0, status: str = "completed") -> StoredResponse:
    """Return a response of a tenant, with a body of a size."""
    return replace(RESPONSE, id=id_, tenant=share, share=share, body=b"x" * size, status=status)
