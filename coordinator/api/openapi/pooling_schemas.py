"""Schemas of the responses of the routes of pooling models in the OpenAPI document."""

import builtins

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


class PooledData(BaseModel):
    """The result of one input: a vector, or one of each of its tokens."""

    index: int
    object: str
    data: list[float] | list[list[float]] | str


class PooledDataList(BaseModel):
    """The results of all inputs, in their order."""

    id: str
    object: str
    created: int
    model: str
    data: list[PooledData]
    usage: UsageInfo


class Classification(BaseModel):
    """The probabilities of one input's classes, and the name of the likeliest."""

    index: int
    label: str | None
    probs: list[float]
    num_classes: int


class Classes(BaseModel):
    """The classes of all inputs, in their order."""

    id: str
    object: str
    created: int
    model: str
    data: list[Classification]
    usage: UsageInfo


class Score(BaseModel):
    """The score of one pair."""

    index: int
    object: str
    score: float


class Scores(BaseModel):
    """The scores of all pairs, in their order."""

    id: str
    object: str
    created: int
    model: str
    data: list[Score]
    usage: UsageInfo


class RankedText(BaseModel):
    """A document."""

    text: str
    multi_modal: None


class RankedDocument(BaseModel):
    """A document with its position in the request and its score."""

    index: int
    document: RankedText
    relevance_score: float


class RankingUsage(BaseModel):
    """Token counts."""

    prompt_tokens: int
    total_tokens: int


class Ranking(BaseModel):
    """Documents, the most relevant first."""

    id: str
    model: str
    usage: RankingUsage
    results: list[RankedDocument]


class TypedEmbeddings(BaseModel):
    """The vectors of all inputs, in each requested type."""

    float: list[list[builtins.float]] | None = None
    binary: list[list[int]] | None = None
    ubinary: list[list[int]] | None = None
    base64: list[str] | None = None


class CohereVersion(BaseModel):
    """The version of Cohere's API."""

    version: str


class CohereUnits(BaseModel):
    """Token counts."""

    input_tokens: int
    image_tokens: int


class CohereMeta(BaseModel):
    """What Cohere's clients read beside the vectors."""

    api_version: CohereVersion
    billed_units: CohereUnits


class CohereEmbeddings(BaseModel):
    """The embeddings of all inputs, in Cohere's format."""

    id: str
    embeddings: TypedEmbeddings
    texts: list[str] | None = None
    meta: CohereMeta
    response_type: str
