"""Requests that a worker has just started: those that it may die of, even if they were aborted."""

from collections import OrderedDict
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
        self._prefilled: OrderedDict[int, int] = OrderedDict()
        """Number of the frame of the first token, by slot; oldest first."""
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
            self._prefilled.pop(slot, None)

    def on_frame(self, frame: pb.StepFrame) -> None:
        """Update from the first tokens and finishes of a frame."""
        self._frames += 1
        survived: dict[int, Submission] = {}  # a frame may end very many inputs of one request
        for finish in frame.finishes:
            submission = self._started.pop(finish.slot, None)
            if finish.slot in self._prefilled:
                del self._prefilled[finish.slot]
            # An aborted request has not been shown to be harmless.
            if submission is not None and finish.reason not in (pb.FINISH_REASON_ABORT, pb.FINISH_REASON_ERROR):
                survived[id(submission)] = submission
        for submission in survived.values():
            self._on_survived(submission)
        for info in frame.prefills:  # those of inputs that end at once are not here anymore
            if info.slot in self._started:
                self._prefilled.setdefault(info.slot, self._frames)
        while self._prefilled and next(iter(self._prefilled.values())) + _FEW_FRAMES <= self._frames:
            slot, _ = self._prefilled.popitem(last=False)
            self._on_survived(self._started.pop(slot))

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
