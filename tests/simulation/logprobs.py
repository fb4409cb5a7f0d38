"""The log-probabilities that a client must read: a pure function of its ids, as simulated engines draw them."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tests.simulation.engines import Placement
from tokenwire.worker.simulated_engine.tokens import LogprobShape, hash_context, logprob_rows, stable_hash

_TOLERANCE = 1e-4
"""They are single-precision numbers in the protocol."""


def logprobs_problem(
    logprobs: Mapping[str, Any] | None, ids: Sequence[int], new: int, placement: Placement, spec: Mapping[str, Any]
) -> str:
    """Return what is wrong with the log-probabilities of the last `new` of a prompt's and choice's ids; else nothing.

    `placement` is any of the request's: all draw from the same words.
    """
    rows = [] if logprobs is None else _rows(logprobs, spec)
    if len(rows) != new:
        return f"{len(rows)} rows of log-probabilities for {new} tokens"
    shape = LogprobShape(spec["logprobs"], (), spec["sampling"] == "greedy")
    for place, (own, others) in enumerate(rows, len(ids) - new):
        context = hash_context(list(ids[:place]))[0]
        expected = logprob_rows(shape, placement.words, [(context, ids[place])])
        if not math.isclose(own, expected.logprobs[0], abs_tol=_TOLERANCE):
            return f"log-probability {own} of the id at {place} instead of {expected.logprobs[0]}"
        if not all(
            any(math.isclose(each, other, abs_tol=_TOLERANCE) for other in expected.logprobs) for each in others
        ):
            return f"log-probabilities {others} at {place} instead of {expected.logprobs}"
    return ""


def joined(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the log-probabilities of several parts of a choice as those of one."""
    names = parts[0].keys()
    return {name: [each for part in parts for each in part[name] or ()] for name in names}


def prompt_logprobs_problem(
    scores: Sequence[Mapping[str, Any] | None] | None, prompt: Sequence[int], words: tuple[int, ...], most: int
) -> str:
    """Return what is wrong with the log-probabilities of a prompt; empty if nothing."""
    if scores is None or len(scores) != len(prompt) or scores[0] is not None:
        return f"{None if scores is None else len(scores)} log-probabilities for {len(prompt)} prompt tokens"
    context = 0
    for place in range(1, len(prompt)):
        context, found = stable_hash(context, prompt[place - 1]), scores[place] or {}
        rows = logprob_rows(LogprobShape(most), words, [(context, prompt[place])])
        expected = {str(token): value for token, value in zip(rows.token_ids, rows.logprobs, strict=True)}
        if found.keys() != expected.keys():
            return f"log-probabilities of {sorted(found)} for the prompt's id at {place} instead of {sorted(expected)}"
        if not all(math.isclose(found[each]["logprob"], expected[each], abs_tol=_TOLERANCE) for each in found):
            return f"log-probabilities {found} of the prompt's id at {place} instead of {expected}"
    return ""


def _rows(logprobs: Mapping[str, Any], spec: Mapping[str, Any]) -> list[tuple[float, list[float]]]:
    """Return of each token its own, and those of the likeliest."""
    if spec["route"] != "completions":
        return [
            (each["logprob"], [other["logprob"] for other in each["top_logprobs"]])
            for each in logprobs["content"] or ()
        ]
    tops = logprobs["top_logprobs"]
    return [(own, list(top.values())) for own, top in zip(logprobs["token_logprobs"], tops, strict=True)]
