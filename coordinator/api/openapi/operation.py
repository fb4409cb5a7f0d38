"""What the OpenAPI document says of one route beyond what the route's own code tells."""

from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel

Group = Literal["OpenAI", "Anthropic", "Token ids", "SGLang", "TRL", "Service", "Steering", "Reinforcement learning"]


@dataclass(frozen=True, slots=True)
class Operation:
    """One route."""

    group: Group
    summary: str
    answer: Any = None
    """What a 200 holds: a model or a type made of models; str: plain text; None: nothing."""
    chunk: type[BaseModel] | None = None
    """The data of each event, where the answer can be streamed."""
    form: type[BaseModel] | None = None
    """The fields, where the route reads them from the query and the body itself."""
    description: str = ""
    generates: bool = False
    """Whether an engine works on it, so that it may have to wait, and may fail for want of a worker."""
    example: dict[str, Any] | None = None
    """A body to begin with."""
