"""Tells clients that a reply went on at another worker: a field where a choice ends, a header on whole replies."""

from typing import Any

from tokenwire.coordinator.types import Finish

RESUMED_HEADER = "X-Tokenwire-Resumed"


def shown_resumption(finish: Finish | None) -> dict[str, Any]:
    """Return what a choice says at its end: nothing unless it was resumed."""
    return {"resumed": True} if finish is not None and finish.resumed else {}
