"""Schemas of the responses of the routes of pooling models in the OpenAPI document."""

from pydantic import BaseModel

from tokenwire.coordinator.api.openapi.openai_schemas import UsageInfo

AS_BYTES = "the response is `application/octet-stream`, and with bytes a header `metadata` has the rest as JSON."


class Embedding(BaseModel):
    """The embedding of one input."""

    index: int
    object: str
    embedding: list[float] | str


class Embeddings(BaseModel):
    """The embeddings of all inputs, in their order."""

    id: str
    object: str
    created: int
    model: str
    data: list[Embedding]
    usage: UsageInfo
