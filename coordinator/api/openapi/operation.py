"""Metadata of one route in the OpenAPI document beyond its code."""

from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel

Group = Literal[
    "OpenAI", "Anthropic", "Token ids", "Trajectories", "SGLang", "TRL", "Service", "Admin", "Reinforcement learning"
]


@dataclass(frozen=True, slots=True)
class Operation:
    """One route."""

    group: Group
    summary: str
    response: Any = None
    """Body of a 200: a model or a type made of models; str: plain text; None: empty."""
    media_types: tuple[str, ...] = ()
    """Of a 200 that is neither JSON nor plain text."""
    chunk: type[BaseModel] | None = None
    """The data of each event, if the response can be streamed."""
    form: type[BaseModel] | None = None
    """The fields of a route that reads them from the query and the body itself."""
    description: str = ""
    generates: bool = False
    """Whether it needs an engine: it may be queued, and fails without workers."""
    finds: bool = False
    """Whether its path names something that may not be there."""
    example: dict[str, Any] | None = None
    """An example body."""
