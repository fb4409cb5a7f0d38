"""Tokens with all of their text, for parsers: what may become a stop string is held back, and its tokens with it.

A parser that gets the id of a token before its text, or a part of it, reads something else than the model wrote.
"""

from tokenwire.coordinator.output.choice import Reply
from tokenwire.coordinator.text.detokenizer import StoppingTextStream
from tokenwire.coordinator.text.logprobs import ScoredPosition
from tokenwire.coordinator.types import Finish, Prefill


class WholeTokens:
    """Stands between one choice, which takes its tokens one by one, and both its text and its reply."""

    __slots__ = ("_ends", "_ids", "_released", "_reply", "_scored", "_sent", "_text", "fail", "first_tokens")

    def __init__(self, text: StoppingTextStream, reply: Reply) -> None:
        self._text = text
        self._reply = reply
        self.first_tokens = reply.first_tokens
        self.fail = reply.fail
        self._ids: list[int] = []
        """Of the tokens that are held."""
        self._ends: list[int] = []
        """Where the text of each ends, in characters of the whole text."""
        self._scored: list[ScoredPosition] = []
        self._released = ""
        """Text of the held tokens that is not held itself."""
        self._sent = 0
        """Characters that were passed on."""

    def step(self, token_ids: list[int], stop_terminated: bool, finished: bool) -> tuple[str, int, str | None]:
        """Decode a token; see TextSource."""
        text, kept, matched = self._text.step(token_ids, stop_terminated, finished)
        decoded = self._sent + len(self._released) + len(text) + len(self._text.scanner.held)
        self._ends += [decoded] * len(token_ids)
        return text, kept, matched

    def prefilled(self, index: int, prefill: Prefill) -> None:
        """Pass on."""
        self._reply.prefilled(index, prefill)

    def tokens_of(self, index: int) -> int:
        """Return the number of the choice's tokens so far, with those that are held."""
        return self._reply.tokens_of(index) + len(self._ids)

    def delta(
        self,
        index: int,
        text: str,
        token_ids: list[int],
        finish: Finish | None,
        logprobs: list[ScoredPosition] | None = None,
    ) -> None:
        """Pass on the tokens whose text is complete, one by one; at the end all of them."""
        self._released += text
        self._ids += token_ids
        self._scored += logprobs or ()
        is_scored = logprobs is not None
        if finish is None:
            while self._ids and self._ends[0] <= self._sent + len(self._released):
                self._pass_on(index, self._ends[0] - self._sent, is_scored)
            return
        while len(self._ids) > 1:
            self._pass_on(index, self._ends[0] - self._sent, is_scored)
        self._pass_on(index, len(self._released), is_scored, finish)

    def _pass_on(self, index: int, size: int, is_scored: bool, finish: Finish | None = None) -> None:
        """Pass on the first token that is held, with so many characters."""
        self._ends = self._ends[1:]
        text, self._released = self._released[:size], self._released[size:]
        ids, self._ids = self._ids[:1], self._ids[1:]
        scored, self._scored = self._scored[:1], self._scored[1:]
        self._sent += len(text)
        self._reply.delta(index, text, ids, finish, scored if is_scored else None)
