"""A reply that is not streamed: collects every choice until all have ended."""

import asyncio
from dataclasses import dataclass, field

from tokenwire.coordinator.output.progress import Progress
from tokenwire.coordinator.text.logprobs import ScoredPosition
from tokenwire.coordinator.types import Finish, Prefill
from tokenwire.errors import TokenwireError


@dataclass(slots=True)
class CollectedChoice:
    """A finished choice."""

    text: str = ""
    texts: list[str] = field(default_factory=list)
    """The text of each step."""
    token_ids: list[int] = field(default_factory=list)
    finish: Finish = field(default=Finish("abort"))
    prefill: Prefill = field(default=Prefill(0))
    logprobs: list[ScoredPosition] | None = None
    """One entry per token, if requested."""


class CollectedReply:
    """Collects choices; `wait` returns them when the last one has ended."""

    def __init__(self, choices: int) -> None:
        self._choices = [CollectedChoice() for _ in range(choices)]
        self._open = choices
        self.progress = Progress([0] * choices)
        self._done: asyncio.Future[TokenwireError | None] = asyncio.get_running_loop().create_future()

    def prefilled(self, index: int, prefill: Prefill) -> None:
        """Record a choice's prefill."""
        self.progress.cached_tokens[index] = prefill.cached_tokens
        self._choices[index].prefill = prefill

    def first_tokens(self) -> None:
        """Record the time of the first tokens."""
        self.progress.on_first_tokens()

    def tokens_of(self, index: int) -> int:
        """Return the number of a choice's tokens so far."""
        return len(self._choices[index].token_ids)

    def delta(
        self,
        index: int,
        text: str,
        token_ids: list[int],
        finish: Finish | None,
        logprobs: list[ScoredPosition] | None = None,
    ) -> None:
        """Add the output of one step of a choice."""
        choice = self._choices[index]
        choice.texts.append(text)
        choice.token_ids += token_ids
        if logprobs is not None:
            if choice.logprobs is None:
                choice.logprobs = []
            choice.logprobs += logprobs
        if finish is not None:
            self.progress.on_finish(finish)
            choice.finish = finish
            choice.text = "".join(choice.texts)
            self._open -= 1
            if not self._open:
                self._end(None)

    def fail(self, error: TokenwireError) -> None:
        """End `wait` with the first error."""
        if not self._done.done():
            self.progress.failure = error
        self._end(error)

    def give_up(self) -> None:
        """End `wait` with the output so far, because the client has disconnected."""
        self._end(None)

    async def wait(self) -> list[CollectedChoice]:
        """Wait for the last choice. Raises the error of the first one that failed."""
        error = await self._done
        if error is not None:
            raise error
        return self._choices

    def _end(self, error: TokenwireError | None) -> None:
        if not self._done.done():
            self._done.set_result(error)
