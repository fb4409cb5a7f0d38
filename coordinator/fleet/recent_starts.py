"""Requests that a worker has just begun with: those that it may die of, whether or not anybody still wants them."""

from collections import deque
from collections.abc import Callable, Sequence

from tokenwire.v1 import inference_pb2 as pb

_FEW_FRAMES = 4
"""For so many frames behind its first token a request counts as just begun."""


class RecentStarts:
    """Follows the slots of one session from their submit to their first few tokens."""

    def __init__(self, survived: Callable[[pb.Submit], None] = lambda submit: None) -> None:
        """`survived` is called with a request that got its first few tokens, or ended as it should."""
        self._survived = survived
        self._begun: dict[int, pb.Submit] = {}
        self._prefilled: deque[tuple[int, int, pb.Submit]] = deque()
        """Number of the frame, slot and request; oldest first."""
        self._frames = 0

    def on_submit(self, slots: Sequence[int], submit: pb.Submit) -> None:
        """Take note of a request."""
        self._begun.update(dict.fromkeys(slots, submit))

    def on_refusal(self, slots: Sequence[int]) -> None:
        """Forget a request that never began."""
        for slot in slots:
            self._begun.pop(slot, None)

    def on_frame(self, frame: pb.StepFrame) -> None:
        """Learn from a frame who got tokens, and who ended."""
        self._frames += 1
        for info in frame.prefills:
            if info.slot in self._begun:
                self._prefilled.append((self._frames, info.slot, self._begun[info.slot]))
        for finish in frame.finishes:
            submit = self._begun.pop(finish.slot, None)
            # One that was aborted has not shown that it does no harm.
            if submit is not None and finish.reason not in (pb.FINISH_REASON_ABORT, pb.FINISH_REASON_ERROR):
                self._survived(submit)
        while self._prefilled and self._prefilled[0][0] + _FEW_FRAMES <= self._frames:
            _, slot, submit = self._prefilled.popleft()
            if self._begun.get(slot) is submit:  # else it has ended, and the slot is another one's
                del self._begun[slot]
                self._survived(submit)

    def take_all(self) -> list[pb.Submit]:
        """Return those that are there, each once, because the worker is not any more."""
        present = list({id(submit): submit for submit in self._begun.values()}.values())
        self._begun.clear()
        self._prefilled.clear()
        return present
