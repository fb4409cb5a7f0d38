"""Checks that the reference treated a written request as its name claims; otherwise it tests something else."""

import json
from typing import Any

from tests.conformance.parity.request import Ending, Reply, Request


def wrong_premise(request: Request, theirs: Reply) -> str | None:
    """Return how the reference's response contradicts the request's name; None if it does not."""
    if request.rejected:
        return "answered, not rejected" if theirs.succeeded else None
    if request.ends is None:
        return None
    if not theirs.succeeded:
        return f"rejected: {theirs.text[:200]}"
    ending = _ending(theirs)
    return None if ending == request.ends else f"ended {ending}, not {request.ends}"


def _ending(reply: Reply) -> Ending | None:
    """Return how the first choice of a response ended."""
    answers: list[Any] = [json.loads(event) for event in reply.events() if event != "[DONE]"] or [reply.json()]
    for answer in answers:
        for choice in answer["choices"]:
            if choice["index"] == 0 and choice.get("finish_reason"):
                return choice["finish_reason"], choice.get("stop_reason")
    return None
