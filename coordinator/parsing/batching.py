"""Batches deltas for a parser that rescans its whole input on each call, so that its work stays about linear.

Most of vLLM's parsers scan or decode all text so far at every delta, up to two milliseconds each at 1,500 tokens. A
parser is called as often as a CPU budget per token allows: one token at a time while calls are cheap, with ever more
tokens at a time as they become expensive, up to a number. Only plain text is batched. Tokens at which a parser may
change its state are passed alone, because many parsers make one transition per call and would lose the output of a
second one.

The parsers of a model share a little time beyond these budgets: where there are few streams, text streams token by
token all the same.
"""

import re
import time
from collections.abc import Callable
from dataclasses import dataclass

from tokenwire.coordinator.parsing.message import MOST_WAITING, MessageDelta, RawParser, merge

# An unescaped quotation mark, a tag or a new line: where JSON and XML change their structure.
_STRUCTURE = re.compile(r'["<\n]')


class SpareTime:
    """CPU time that all parsers of a model together may take beyond their budgets."""

    def __init__(self, share: float = 0.02, most_s: float = 0.02, clock: Callable[[], float] = time.monotonic) -> None:
        """`share`: of one core; `most_s`: as much as is kept for later."""
        self._share = share
        self._most_s = most_s
        self._clock = clock
        self._left_s = most_s
        self._at = clock()

    def covers(self, cost_s: float) -> bool:
        """Return whether so much is left."""
        now = self._clock()
        self._left_s = min(self._most_s, self._left_s + (now - self._at) * self._share)
        self._at = now
        return cost_s <= self._left_s

    def take(self, cost_s: float) -> None:
        """Count what was taken; more than is left is owed."""
        self._left_s -= cost_s


@dataclass(frozen=True, slots=True)
class ParserBudget:
    """CPU budget of a parser."""

    per_token_s: float = 12e-6
    """Average CPU time per token for expensive parser calls: a quarter of a streamed token's without a parser."""
    cheap_s: float = 25e-6
    """Calls of up to this time are made for each token, so that most text streams as it is generated."""
    wait_s: float = 1.0
    """Longest delay of text while tokens arrive."""
    spare: SpareTime | None = None
    """What there is beyond it."""
    cpu_clock: Callable[[], float] = time.thread_time
    wall_clock: Callable[[], float] = time.monotonic


class BatchingFeed:
    """Feeds one parser. Its deltas add up to what the parser would return for single tokens."""

    __slots__ = ("_budget", "_called_at", "_cost", "_escaped", "_marks", "_parser", "_splits_text", "_texts", "waiting")

    def __init__(self, parser: RawParser, marks: frozenset[int], splits_text: bool, budget: ParserBudget) -> None:
        """`marks` are ids that are passed alone; `splits_text`: so is text with structural characters."""
        self._parser = parser
        self._marks = marks
        self._splits_text = splits_text
        self._budget = budget
        self._texts: list[str] = []
        self.waiting: list[int] = []
        """The ids of a batch that has not been passed yet."""
        self._cost = 0.0
        self._called_at = budget.wall_clock()
        self._escaped = False

    def feed(self, text: str, token_ids: list[int], finished: bool) -> MessageDelta | None:
        """Add the output of one step; return a delta if the parser was called, always when finished."""
        if finished or self._stands_alone(text, token_ids):
            # The end is passed alone too: some parsers take the empty text of an end token for the end.
            gathered = self._call_gathered()
            return merge(gathered, self._call(text, token_ids, finished))
        self._texts.append(text)
        self.waiting += token_ids
        if not text:
            return None  # an incomplete character: the parser needs its tokens together to count them all
        return self._call_gathered() if self._is_due(len(self.waiting)) else None

    def passes(self, text: str, token_ids: list[int]) -> bool:
        """Whether the parser would be called with the output of such a step, and with all that waits."""
        if not self._marks.isdisjoint(token_ids) or (self._splits_text and _STRUCTURE.search(text)):
            return True
        return self._is_due(len(self.waiting) + len(token_ids))

    def _is_due(self, waiting: int) -> bool:
        budget = self._budget
        if waiting >= MOST_WAITING or self._cost <= max(budget.cheap_s, waiting * budget.per_token_s):
            return True
        if budget.spare is not None and budget.spare.covers(self._cost):
            return True
        return budget.wall_clock() - self._called_at >= budget.wait_s

    def _stands_alone(self, text: str, token_ids: list[int]) -> bool:
        for token_id in token_ids:
            if token_id in self._marks:
                self._escaped = False
                return True
        if not self._splits_text:
            return False
        escaped = self._escaped
        if text:
            self._escaped = text[-1] == "\\" and _ends_escaped(text, escaped)
        if _STRUCTURE.search(text) is None:
            return False
        return _STRUCTURE.search(_unescaped(text, escaped)) is not None

    def _call_gathered(self) -> MessageDelta | None:
        if not self.waiting:
            return None
        text, token_ids = "".join(self._texts), self.waiting
        self._texts, self.waiting = [], []
        delta = self._call(text, token_ids, False)
        budget = self._budget
        if budget.spare is not None and self._cost > budget.cheap_s:
            budget.spare.take(max(0.0, self._cost - len(token_ids) * budget.per_token_s))
        return delta

    def _call(self, text: str, token_ids: list[int], finished: bool) -> MessageDelta | None:
        budget = self._budget
        started = budget.cpu_clock()
        delta = self._parser.feed(text, token_ids, finished)
        self._cost = budget.cpu_clock() - started
        self._called_at = budget.wall_clock()
        return delta


def _ends_escaped(text: str, escaped: bool) -> bool:
    bare = text.rstrip("\\")
    backslashes = len(text) - len(bare)
    return (backslashes + (escaped and not bare)) % 2 == 1


def _unescaped(text: str, escaped: bool) -> str:
    return re.sub(r"\\.", "", ("\\" if escaped else "") + text)
