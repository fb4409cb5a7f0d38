"""One choice of a reply: turns a slot's tokens into text, ends it at a stop string, and feeds its reply."""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from tokenwire.coordinator.text.logprobs import ScoredPosition
from tokenwire.coordinator.types import Finish, Prefill, WeightSpan
from tokenwire.errors import EngineFailed, ProtocolError, TokenwireError
from tokenwire.v1 import inference_pb2 as pb

# vLLM's stop_reason of a sequence that repeats itself.
_REPEATED = "repetition_detected"

_NOT_LABELLED = [(0, "")]
"""The weight versions of a choice whose worker's weights never had a label."""
_ROWS_AT_ONCE = 16
"""Of a long prompt, which has up to the vocabulary's log-probabilities in each."""
_MOST_TRANSFER_CHARS = 2**20
"""Of what a reply says of its cache, which is kept until all choices have ended: a block takes about six."""
MOST_DECODED = 16 * 1024
"""Log-probabilities of a prompt that are decoded at once, in a hundredth of a second."""

_REASONS = {
    pb.FINISH_REASON_STOP: "stop",
    pb.FINISH_REASON_LENGTH: "length",
    pb.FINISH_REASON_ABORT: "abort",
}


class TextSource(Protocol):
    """Decodes one sequence; see tokenwire.coordinator.text.detokenizer."""

    def step(self, token_ids: list[int], stop_terminated: bool, finished: bool) -> tuple[str, int, str | None]:
        """Decode tokens; return new text, the number of tokens that count, and the stop string that matched."""


class LogprobSource(Protocol):
    """Decodes log-probabilities of one sequence or prompt; see tokenwire.coordinator.text.logprobs."""

    def decode(self, rows: pb.LogprobRows) -> list[ScoredPosition]:
        """Decode rows in the order of the sequence."""


class Reply(Protocol):
    """Receives the output of a request's choices."""

    def prefilled(self, index: int, prefill: Prefill) -> None:
        """Record a choice's prefill, before its first delta."""

    def first_tokens(self) -> None:
        """Called before the first delta of each choice."""

    def tokens_of(self, index: int) -> int:
        """Return the number of a choice's tokens so far."""

    def delta(
        self,
        index: int,
        text: str,
        token_ids: list[int],
        finish: Finish | None,
        logprobs: list[ScoredPosition] | None = None,
    ) -> None:
        """Add the output of one step of a choice, the last one with its finish; log-probabilities only if requested."""

    def fail(self, error: TokenwireError) -> None:
        """Fail the reply, because a choice cannot be completed."""


class LongPromptLogprobs:
    """The log-probabilities of a long prompt: decoded each time they are read, a few at a time.

    Decoded, they take twenty times as much memory, and long at once.
    """

    __slots__ = ("_rows", "_source")

    def __init__(self, source: Callable[[], LogprobSource], rows: pb.LogprobRows) -> None:
        """Raises ProtocolError if the first row is not what was asked for; all have one width."""
        self._source = source
        self._rows = rows
        next(self._parts(), None)

    def __iter__(self) -> Iterator[ScoredPosition | None]:
        yield None  # the first token has no context, and so no log-probability
        for part in self._parts():
            yield from part

    def _parts(self) -> Iterator[list[ScoredPosition]]:
        source, rows = self._source(), self._rows
        for start in range(0, len(rows.token_ids), _ROWS_AT_ONCE * rows.width):
            end, first = start + _ROWS_AT_ONCE * rows.width, start // rows.width
            yield source.decode(
                pb.LogprobRows(
                    width=rows.width,
                    token_ids=rows.token_ids[start:end],
                    logprobs=rows.logprobs[start:end],
                    sampled_ranks=rows.sampled_ranks[first : first + _ROWS_AT_ONCE],
                )
            )


@dataclass(eq=False, slots=True)
class SharedPromptLogprobs:
    """The log-probabilities of a prompt, decoded once for all of its choices unless they are very many."""

    source: Callable[[], LogprobSource]
    _positions: Iterable[ScoredPosition | None] | None = field(default=None, init=False)

    def decode(self, rows: pb.LogprobRows) -> Iterable[ScoredPosition | None]:
        """Return the prompt's positions, by the first rows that came; each choice has the same."""
        if self._positions is None:
            long = rows.width and len(rows.token_ids) > MOST_DECODED
            self._positions = LongPromptLogprobs(self.source, rows) if long else [None, *self.source().decode(rows)]
        return self._positions


@dataclass(eq=False, slots=True)
class Choice:
    """The slot listener of one choice of a reply."""

    index: int
    text: TextSource
    reply: Reply
    decode_logprobs: Callable[[], LogprobSource] | None = None
    """None if the request has no log-probabilities."""
    token_by_token: bool = False
    prompt_logprobs: SharedPromptLogprobs | None = None
    cached_tokens: int = field(default=0, init=False)
    """Tokens of the prompt that its worker had in its cache."""
    _started: bool = field(default=False, init=False)
    finish: Finish | None = field(default=None, init=False)
    """How it ended; None: not yet, or with an error."""
    _failed: bool = field(default=False, init=False)
    _resumed: bool = field(default=False, init=False)
    _logprobs: LogprobSource | None = field(default=None, init=False)
    _scored: list[ScoredPosition] = field(default_factory=list, init=False)
    """Log-probabilities until their tokens arrive."""
    _versions: list[tuple[int, str]] = field(default_factory=list, init=False)
    """Weight versions, each with the number of tokens before it."""

    @property
    def gained(self) -> int:
        """Its tokens so far."""
        return self.reply.tokens_of(self.index)

    def prefilled(self, info: pb.PrefillInfo) -> None:
        """Pass the prefill on to the reply."""
        self.cached_tokens = info.cached_tokens
        logprobs: Iterable[ScoredPosition | None] | None = None
        if info.HasField("prompt_logprobs") and self.prompt_logprobs is not None:
            logprobs = self.prompt_logprobs.decode(info.prompt_logprobs)
        created = info.created_cache_tokens if info.HasField("created_cache_tokens") else None
        self.reply.prefilled(self.index, Prefill(info.cached_tokens, created, logprobs))

    def scored(self, rows: pb.LogprobRows) -> None:
        """Add the log-probabilities of the next step's tokens."""
        if self.decode_logprobs is not None:
            if self._logprobs is None:
                self._logprobs = self.decode_logprobs()
            self._scored += self._logprobs.decode(rows)

    def weights(self, version: str) -> None:
        """Record the weight version of the following tokens."""
        tokens, versions = self.reply.tokens_of(self.index), self._versions
        if versions and versions[-1][0] == tokens:
            versions.pop()  # generated no token of this choice
        if not versions or versions[-1][1] != version:
            versions.append((tokens, version))

    def resumed(self) -> None:
        """Record that another worker continues the sequence."""
        self._resumed = True

    def step(self, token_ids: list[int], finish: pb.Finish | None) -> bool:
        """Process the tokens of one frame; return True if a stop string ended the choice before the engine did."""
        if not self._started:
            self._start()
        if self.token_by_token and len(token_ids) > 1:
            if any(self.step([token_id], None) for token_id in token_ids[:-1]):
                return True
            token_ids = token_ids[-1:]
        if finish is None:
            text, kept, matched = self.text.step(token_ids, False, False)
            if matched is None:
                if self._logprobs is None:
                    self.reply.delta(self.index, text, token_ids, None)
                else:
                    self.reply.delta(self.index, text, token_ids, None, self._take_scored(kept))
                return False
        elif finish.reason == pb.FINISH_REASON_ERROR:
            self.fail(EngineFailed(finish.error_message or "The engine failed on this request."))
            return False
        else:
            text, kept, matched = self.text.step(token_ids, finish.reason == pb.FINISH_REASON_STOP, True)
        versions = self.spans(self.reply.tokens_of(self.index) + kept)
        if matched is None and finish is not None:
            ending = _finish_of(finish, self._resumed, versions)
        else:
            ending = Finish("stop", matched, None, self._resumed, versions)
        logprobs = None if self._logprobs is None else self._take_scored(kept)
        self.reply.delta(self.index, text, token_ids[:kept], ending, logprobs)
        self.finish = ending  # only now: if the last delta raises, `fail` must still reach the reply
        return True

    def _start(self) -> None:
        self._started = True
        if self._logprobs is None and self.decode_logprobs is not None:
            self._logprobs = self.decode_logprobs()  # from here on they are missed
        self.reply.first_tokens()

    def _take_scored(self, count: int) -> list[ScoredPosition]:
        """Return the log-probabilities of the next tokens. Raises ProtocolError if some are missing."""
        taken, self._scored = self._scored[:count], self._scored[count:]
        if len(taken) != count:
            raise ProtocolError("The worker did not send log-probabilities for each token.")
        return taken

    def spans(self, tokens: int) -> list[WeightSpan] | None:
        """Return the weight versions of its first tokens; None if they are not labelled."""
        if not self._versions or self._versions == _NOT_LABELLED:
            return None
        known = [(start, version) for start, version in self._versions if start < tokens]
        if "" in [version for _, version in known]:
            return None
        ends = [start for start, _ in known[1:]] + [tokens]
        return [WeightSpan(version, start, end) for (start, version), end in zip(known, ends, strict=False)]

    def fail(self, error: TokenwireError) -> None:
        """Fail the reply, unless the choice has already ended."""
        if self.finish is None and not self._failed:
            self._failed = True
            self.reply.fail(error)


def _finish_of(finish: pb.Finish, resumed: bool, versions: list[WeightSpan] | None) -> Finish:
    if finish.reason == pb.FINISH_REASON_REPETITION:
        return Finish("repetition", _REPEATED, None, resumed, versions)
    stop_id = finish.stop_token_id if finish.WhichOneof("matched") == "stop_token_id" else None
    transfer = finish.kv_transfer_params_json
    if len(transfer) > _MOST_TRANSFER_CHARS:
        raise ProtocolError(f"the worker sent parameters of {len(transfer)} characters for a transfer of its cache")
    kv_transfer_params = json.loads(transfer) if transfer else None
    return Finish(_REASONS.get(finish.reason, "stop"), stop_id, kv_transfer_params, resumed, versions)
