"""Which weights made which tokens of a choice, in vLLM's words."""

from dataclasses import asdict
from typing import Any

from tokenwire.coordinator.types import Finish


def shown_weight_versions(finish: Finish) -> list[dict[str, Any]] | None:
    """Return the spans of a choice; None where the worker does not label its weights."""
    spans = finish.weight_versions
    return None if spans is None else [asdict(span) for span in spans]
