"""Requests that a worker has just started: those that it may die of, even if they were aborted."""

from collections import deque
from collections.abc import Callable, Sequence

from tokenwire.coordinator.fleet.submission import Submission
from tokenwire.v1 import inference_pb2 as pb

_FEW_FRAMES = 4
"""A request counts as just started for this many frames after its first token."""


class RecentStarts:
    """Tracks the slots of one session from their submit to their first few tokens."""

    def __init__(self, on_survived: Callable[[Submission], None] = lambda submission: None) -> None:
        """`on_survived` is called with a request that got its first few tokens or finished normally."""
        self._on_survived = on_survived
        self._started: dict[int, Submission] = {}
        self._prefilled: deque[tuple[int, int, Submission]] = deque()
        """Number of the frame, slot and request; oldest first."""
        self._frames = 0

    def on_submit(self, slots: Sequence[int], submission: Submission) -> None:
        """Add the slots of a request."""
        self._started.update(dict.fromkeys(slots, submission))

    def submission_of(self, slot: int) -> Submission | None:
        """Return the request that was started with a slot, if it is recent."""
        return self._started.get(slot)

    def on_refusal(self, slots: Sequence[int]) -> None:
        """Remove the slots of a request that never started."""
        for slot in slots:
            self._started.pop(slot, None)

    def on_frame(self, frame: pb.StepFrame) -> None:
        """Update from the first tokens and finishes of a frame."""
        self._frames += 1
        for info in frame.prefills:
            if info.slot in self._started:
                self._prefilled.append((self._frames, info.slot, self._started[info.slot]))
        survived: dict[int, Submission] = {}  # a frame may end very many inputs of one request
        for finish in frame.finishes:
            submission = self._started.pop(finish.slot, None)
            # An aborted request has not been shown to be harmless.
            if submission is not None and finish.reason not in (pb.FINISH_REASON_ABORT, pb.FINISH_REASON_ERROR):
                survived[id(submission)] = submission
        for submission in survived.values():
            self._on_survived(submission)
        if frame.finishes and self._prefilled:  # without another frame they would keep what has ended, and its pictures
            self._prefilled = deque([each for each in self._prefilled if each[1] in self._started])
        while self._prefilled and self._prefilled[0][0] + _FEW_FRAMES <= self._frames:
            _, slot, submission = self._prefilled.popleft()
            if self._started.get(slot) is submission:  # else it has ended and the slot was reused
                del self._started[slot]
                self._on_survived(submission)

    def prompt_lengths(self) -> dict[int, int]:
        """Return the lengths of their prompts by slot."""
        return {slot: len(submission.prompt_token_ids) for slot, submission in self._started.items()}

    def submissions(self) -> list[Submission]:
        """Return the recent requests, each once."""
        return list({id(submission): submission for submission in self._started.values()}.values())

    def take_all(self) -> list[Submission]:
        """Return the recent requests, each once, and clear them: the worker was lost."""
        requests = self.submissions()
        self._started.clear()
        self._prefilled.clear()
        return requests
