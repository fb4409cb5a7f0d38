"""Metadata of one route in the OpenAPI document beyond what FastAPI derives from its code."""

from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel

Group = Literal["OpenAI", "Anthropic", "Token ids", "SGLang", "TRL", "Service", "Admin", "Reinforcement learning"]


@dataclass(frozen=True, slots=True)
class Operation:
    """One route."""

    group: Group
    summary: str
    answer: Any = None
    """Body of a 200: a model or a type made of models; str: plain text; None: nothing."""
    chunk: type[BaseModel] | None = None
    """The data of each event, where the answer can be streamed."""
    form: type[BaseModel] | None = None
    """The fields, for a route that reads them from the query and the body itself."""
    description: str = ""
    generates: bool = False
    """Whether it needs an engine, so that it may be queued and may fail when there is no worker."""
    example: dict[str, Any] | None = None
    """An example body."""
