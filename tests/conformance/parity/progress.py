"""How far a stream's choices are after each chunk: text, ids and log-probabilities have to arrive together.

Which tokens share a chunk is chance. After the same number of tokens two servers must have sent the same text, though.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

_CLOCKS = ("token_ids", "completion_tokens", "logprobs")
"""What counts a choice's tokens, the best first."""
_SPREAD = 4
"""A text that one server sends in this many chunks does not come in a single one from the other by chance, twice."""
ALL_AT_ONCE = "chunks with text"


@dataclass(frozen=True)
class Progress:
    """The output of a choice so far."""

    counts: dict[str, int] = field(default_factory=dict)
    """Of token ids and log-probabilities sent, and of tokens by the chunk's own usage; what never came is left out."""
    text: int = 0
    """Characters: text, reasoning and the arguments of calls."""


def progress(chunks: Sequence[dict[str, Any]]) -> dict[str, list[Progress]]:
    """Return the progress of each choice after each of its chunks."""
    seen: dict[str, list[Progress]] = {}
    for chunk in chunks:
        for choice in chunk["choices"]:
            steps = seen.setdefault(str(choice["index"]), [])
            steps.append(_advance(steps[-1] if steps else Progress(), choice, chunk.get("usage")))
    return seen


def disagreements(
    ours: Sequence[Progress], theirs: Sequence[Progress], held_back: int
) -> Iterator[tuple[str, Any, Any]]:
    """Yield where one choice of two streams is not equally far after the same tokens: what, ours, theirs.

    held_back: how many characters the reference keeps because they may begin a stop string; ours may be further.
    """
    clock = next((name for name in _CLOCKS if _counted(name, ours) and _counted(name, theirs)), None)
    if clock is not None:
        # As soon as that number of tokens is there, and before there is another one.
        for our_steps, their_steps in ((ours[::-1], theirs[::-1]), (ours, theirs)):
            at_ours = {step.counts.get(clock, 0): step for step in our_steps}
            at_theirs = {step.counts.get(clock, 0): step for step in their_steps}
            for count in sorted(at_ours.keys() & at_theirs.keys()):
                yield from _at(clock, count, at_ours[count], at_theirs[count], held_back)
    # Where the reference keeps text back, only counts of tokens show what is late.
    if held_back == 0 and _comes_last(ours) and _texts(theirs) >= _SPREAD:
        yield ALL_AT_ONCE, 1, _texts(theirs)


def _at(clock: str, count: int, ours: Progress, theirs: Progress, held_back: int) -> Iterator[tuple[str, Any, Any]]:
    where = f"after {count} {clock}"
    if not 0 <= ours.text - theirs.text <= held_back:
        yield f"characters {where}", ours.text, theirs.text
    for name in ours.counts.keys() & theirs.counts.keys():
        if ours.counts[name] != theirs.counts[name]:
            yield f"{name} {where}", ours.counts[name], theirs.counts[name]


def _counted(name: str, steps: Sequence[Progress]) -> bool:
    return bool(steps) and name in steps[-1].counts


def _texts(steps: Sequence[Progress]) -> int:
    """Count the chunks that have text."""
    return sum(step.text > before.text for before, step in zip([Progress(), *steps], steps, strict=False))


def _comes_last(steps: Sequence[Progress]) -> bool:
    """Return whether all of the text is in one chunk, followed only by the end."""
    return _texts(steps) == 1 and all(step.text == 0 for step in steps[:-2])


def _advance(before: Progress, choice: dict[str, Any], usage: dict[str, Any] | None) -> Progress:
    delta = choice.get("delta") or choice
    calls = [call.get("function") or {} for call in delta.get("tool_calls") or ()]
    parts = [delta.get(name) for name in ("text", "content", "reasoning")]
    parts += [function.get("arguments") for function in calls]
    counts = dict(before.counts)
    scores = choice.get("logprobs") or {}
    for name, more in (
        ("token_ids", choice.get("token_ids")),
        ("logprobs", scores.get("content", scores.get("tokens"))),
    ):
        if more is not None:
            counts[name] = counts.get(name, 0) + len(more)
    if usage:
        counts["completion_tokens"] = usage.get("completion_tokens", 0)
    return Progress(counts, before.text + sum(len(part) for part in parts if isinstance(part, str)))
