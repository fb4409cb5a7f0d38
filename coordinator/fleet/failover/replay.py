"""The listener of a replayed sequence: suppresses the tokens that the client already has."""

from array import array
from typing import Protocol

from tokenwire.coordinator.fleet.slots import SlotListener
from tokenwire.errors import TokenwireError
from tokenwire.v1 import inference_pb2 as pb

_ORDERED = frozenset({pb.FINISH_REASON_ABORT, pb.FINISH_REASON_ERROR})
"""Finish reasons that come from outside the sequence, at any token; all others are its own."""


class Replayed(SlotListener, Protocol):
    """The sequence behind a replay."""

    def on_verified(self, count: int) -> None:
        """Called with the number of tokens that were generated, and are not passed on."""

    def on_diverged(self, position: int) -> None:
        """Called when the token at a position differs from the client's."""


class Replay:
    """Compares the tokens with the known ones, then passes on the new ones."""

    __slots__ = ("_downstream", "_expected", "_rows", "_seen", "_version")

    def __init__(self, downstream: Replayed, known: "array[int]") -> None:
        self._downstream = downstream
        self._expected = known
        self._seen = 0
        """Number of compared tokens."""
        self._rows: pb.LogprobRows | None = None
        self._version = ""

    @property
    def gained(self) -> int:
        """Those of the sequence."""
        return self._downstream.gained

    @property
    def cached_tokens(self) -> int:
        """Those of the sequence."""
        return self._downstream.cached_tokens

    def expect(self, known: "array[int]") -> None:
        """Compare with these tokens: its worker begins at the start after all."""
        self._expected = known

    def prefilled(self, info: pb.PrefillInfo) -> None:
        """Pass on; the sequence drops repetitions."""
        self._downstream.prefilled(info)

    def scored(self, rows: pb.LogprobRows) -> None:
        """Hold the rows until the new tokens are known."""
        if self._caught_up:
            self._downstream.scored(rows)
        else:
            self._rows = rows

    def weights(self, version: str) -> None:
        """Pass on the version of the new tokens."""
        self._version = version
        if self._caught_up:
            self._downstream.weights(version)

    def resumed(self) -> None:
        """Never called: a replay is itself a resumption."""

    def step(self, token_ids: list[int], finish: pb.Finish | None) -> bool:
        """Compare the tokens, and pass on those that the client does not have."""
        if self._caught_up:
            return self._downstream.step(token_ids, finish)
        known = self._expected[self._seen : self._seen + len(token_ids)]
        for offset, token_id in enumerate(known):
            if token_ids[offset] != token_id:
                self._downstream.on_verified(len(token_ids))
                self._downstream.on_diverged(self._seen + offset)
                return True
        self._seen += len(known)
        is_lost = finish is not None and finish.handed_back
        self._downstream.on_verified(len(token_ids if is_lost else known))
        rows, self._rows = self._rows, None
        if is_lost:
            return self._downstream.step([], finish)  # lost again, at any position
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
        self._downstream.on_diverged(self._seen)
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
