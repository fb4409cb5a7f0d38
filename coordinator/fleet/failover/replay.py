"""Listens to a request that runs from its start again: silent until the client's tokens have come out once more."""

from array import array
from typing import Protocol

from tokenwire.coordinator.fleet.slots import SlotListener
from tokenwire.errors import TokenwireError
from tokenwire.v1 import inference_pb2 as pb

_ORDERED = frozenset({pb.FINISH_REASON_ABORT, pb.FINISH_REASON_ERROR})
"""Endings that come from outside the sequence and may come at any token; all others are its own."""


class Replayed(SlotListener, Protocol):
    """The sequence behind a replay."""

    def verified(self, count: int) -> None:
        """Hear that so many tokens came out again."""

    def diverged(self, position: int) -> None:
        """Hear that the token at a position is not the one that the client has."""


class Replay:
    """Compares what comes with what came before, then passes on what follows."""

    __slots__ = ("_downstream", "_expected", "_rows", "_seen", "_version")

    def __init__(self, behind: Replayed, known: "array[int]") -> None:
        self._downstream = behind
        self._expected = known
        self._seen = 0
        """Tokens that were compared."""
        self._rows: pb.LogprobRows | None = None
        self._version = ""

    def prefilled(self, info: pb.PrefillInfo) -> None:
        """Pass on; the sequence knows what it has told already."""
        self._downstream.prefilled(info)

    def scored(self, rows: pb.LogprobRows) -> None:
        """Keep the rows until it is known which tokens are new."""
        if self._caught_up:
            self._downstream.scored(rows)
        else:
            self._rows = rows

    def weights(self, version: str) -> None:
        """Pass on what makes new tokens."""
        self._version = version
        if self._caught_up:
            self._downstream.weights(version)

    def resumed(self) -> None:
        """Nobody says so of a replay, which is one itself."""

    def step(self, token_ids: list[int], finish: pb.Finish | None) -> bool:
        """Compare; pass on what the client does not have."""
        if self._caught_up:
            return self._downstream.step(token_ids, finish)
        known = self._expected[self._seen : self._seen + len(token_ids)]
        for offset, token_id in enumerate(known):
            if token_ids[offset] != token_id:
                self._downstream.diverged(self._seen + offset)
                return True
        self._seen += len(known)
        self._downstream.verified(len(known))
        rows, self._rows = self._rows, None
        if finish is not None and finish.handed_back:
            return self._downstream.step([], finish)  # lost again, wherever it was
        if not self._caught_up:
            return finish is not None and self._end_early(finish)
        self._downstream.weights(self._version)
        new = token_ids[len(known) :]
        if not new and finish is None:
            return False
        if rows is not None:
            self._downstream.scored(_rows_from(rows, len(known)))
        return self._downstream.step(new, finish)

    def fail(self, error: TokenwireError) -> None:
        """Pass on."""
        self._downstream.fail(error)

    def _end_early(self, finish: pb.Finish) -> bool:
        if finish.reason in _ORDERED:
            return self._downstream.step([], finish)
        self._downstream.diverged(self._seen)
        return True

    @property
    def _caught_up(self) -> bool:
        return self._seen == len(self._expected)


def _rows_from(rows: pb.LogprobRows, start: int) -> pb.LogprobRows:
    first = start * rows.width
    return pb.LogprobRows(
        width=rows.width,
        token_ids=rows.token_ids[first:],
        logprobs=rows.logprobs[first:],
        sampled_ranks=rows.sampled_ranks[start:],
    )
