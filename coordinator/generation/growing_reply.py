"""A reply that is kept until it is complete, and may take more than the memory that it claimed: long tokens do."""

import math

from tokenwire.coordinator.fleet.placed_memory import MemoryClaim
from tokenwire.coordinator.output.choice import Reply
from tokenwire.coordinator.text.logprobs import ScoredPosition
from tokenwire.coordinator.types import Finish
from tokenwire.errors import TokenwireError

_STEP_BYTES = 64 * 1024
"""Of what it claims at a time."""
_TOKEN_CHARS = 32
"""Of its text, for which the memory of a token is enough: kept, joined and rendered. Most tokens have 4 or 5."""


class GrowingReply:
    """Passes everything on to a reply, which fails when the memory for further tokens is refused."""

    __slots__ = ("_claim", "_left", "_reply", "_step", "_token_bytes", "first_tokens", "prefilled", "tokens_of")

    def __init__(self, reply: Reply, claim: MemoryClaim, tokens: int, token_bytes: int) -> None:
        """`tokens`: for how many of all choices there is memory in the claim; `token_bytes`: what each more takes."""
        self.prefilled, self.first_tokens, self.tokens_of = reply.prefilled, reply.first_tokens, reply.tokens_of
        self._reply = reply
        self._claim = claim
        self._left: float = tokens
        self._token_bytes = token_bytes
        self._step = math.ceil(_STEP_BYTES / token_bytes)
        claim.on_refused = self.fail

    def delta(
        self,
        index: int,
        text: str,
        token_ids: list[int],
        finish: Finish | None,
        logprobs: list[ScoredPosition] | None = None,
    ) -> None:
        """Add the output of one step of a choice, if there is memory for it."""
        self._left -= max(len(token_ids), len(text) // _TOKEN_CHARS)
        if self._left < 0:
            self._grow()
        self._reply.delta(index, text, token_ids, finish, logprobs)

    def fail(self, error: TokenwireError) -> None:
        """Fail the reply."""
        self._left = math.inf  # what still comes is not kept for long
        self._reply.fail(error)

    def _grow(self) -> None:
        tokens = self._step - self._left
        self._left = self._step
        self._claim.grow(int(tokens) * self._token_bytes)
