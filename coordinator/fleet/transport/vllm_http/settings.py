"""Settings for plain vLLM servers."""

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class VllmHttpSettings:
    """How plain vLLM servers are used."""

    tokenizer: Path | None = None
    """The model's directory: such servers have no route for tokenizer files."""
    key: str | None = field(default=None, repr=False)
    """Their API key; None: they require none."""
