"""Reply fields set when a choice ends: whether it was resumed, which weights generated it; and a stream's end."""

from dataclasses import asdict
from typing import Any

from tokenwire.coordinator.types import Finish

RESUMED_HEADER = "X-Tokenwire-Resumed"
"""Set on full responses; in streams each choice has the field, and in the replies of the token routes too."""

DONE = b"data: [DONE]\n\n"
"""The last event of OpenAI's chat and completion streams, and of those of ids."""


def resumption_fields(finish: Finish | None) -> dict[str, Any]:
    """Return the field of a choice that was resumed on another worker; empty for others."""
    return {"resumed": True} if finish is not None and finish.resumed else {}


def weight_version_spans(finish: Finish) -> list[dict[str, Any]] | None:
    """Return a choice's weight versions by span of tokens, as vLLM does; None if the worker does not label weights."""
    spans = finish.weight_versions
    return None if spans is None else [asdict(span) for span in spans]
