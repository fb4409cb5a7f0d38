"""One choice of a reply: turns a slot's tokens into text, ends it at a stop string, and feeds its reply."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from tokenwire.coordinator.text.logprobs import ScoredPosition
from tokenwire.coordinator.types import Finish, Prefill, WeightSpan
from tokenwire.errors import EngineFailed, TokenwireError
from tokenwire.v1 import inference_pb2 as pb

# vLLM's word for what stopped a sequence that repeats itself.
_REPEATED = "repetition_detected"

_REASONS = {
    pb.FINISH_REASON_STOP: "stop",
    pb.FINISH_REASON_LENGTH: "length",
    pb.FINISH_REASON_ABORT: "abort",
}


class TextSource(Protocol):
    """Decodes one sequence; see tokenwire.coordinator.text.detokenizer."""

    def step(self, token_ids: list[int], stop_terminated: bool, finished: bool) -> tuple[str, int, str | None]:
        """Take tokens; return new text, how many of the tokens count, and the stop string that matched."""


class LogprobSource(Protocol):
    """Decodes log-probabilities of one sequence or prompt; see tokenwire.coordinator.text.logprobs."""

    def decode(self, rows: pb.LogprobRows) -> list[ScoredPosition]:
        """Decode rows in the order of the sequence."""


class Reply(Protocol):
    """What a request's choices write to."""

    def prefilled(self, index: int, prefill: Prefill) -> None:
        """Hear how a choice's prompt was computed, before its first delta."""

    def first_tokens(self) -> None:
        """Hear that the engine has begun, before the first delta of any choice."""

    def tokens_of(self, index: int) -> int:
        """Return how many tokens a choice has gained."""

    def delta(
        self,
        index: int,
        text: str,
        token_ids: list[int],
        finish: Finish | None,
        logprobs: list[ScoredPosition] | None = None,
    ) -> None:
        """Take what a choice gained in one step; with the finish, its last. Log-probabilities only if asked for."""

    def fail(self, error: TokenwireError) -> None:
        """Hear that a choice, and so the reply, cannot be completed."""


class Choice:
    """Listens to one slot on behalf of one choice of a reply."""

    __slots__ = (
        "_begun",
        "_decode_logprobs",
        "_ended",
        "_index",
        "_logprobs",
        "_reply",
        "_resumed",
        "_text",
        "_token_by_token",
        "_versions",
    )

    def __init__(
        self,
        index: int,
        text: TextSource,
        reply: Reply,
        decode_logprobs: Callable[[], LogprobSource] | None = None,
        token_by_token: bool = False,
    ) -> None:
        self._index = index
        self._text = text
        self._reply = reply
        self._begun = False
        self._ended = False
        self._resumed = False
        self._decode_logprobs = decode_logprobs
        self._token_by_token = token_by_token
        self._logprobs: _Logprobs | None = None
        self._versions: list[tuple[int, str]] = []
        """Weight versions, each with the number of tokens before it."""

    def prefilled(self, info: pb.PrefillInfo) -> None:
        """Hear how the prompt was computed."""
        logprobs: list[ScoredPosition | None] | None = None
        if info.HasField("prompt_logprobs") and self._decode_logprobs is not None:
            # Nothing comes before the first token that could make it likely.
            logprobs = [None, *self._decode_logprobs().decode(info.prompt_logprobs)]
        created = info.created_cache_tokens if info.HasField("created_cache_tokens") else None
        self._reply.prefilled(self._index, Prefill(info.cached_tokens, created, logprobs))

    def scored(self, rows: pb.LogprobRows) -> None:
        """Take the log-probabilities of the tokens that the next step brings."""
        if self._decode_logprobs is not None:
            if self._logprobs is None:
                self._logprobs = _Logprobs(self._decode_logprobs())
            self._logprobs.add(rows)

    def weights(self, version: str) -> None:
        """Hear which weights make the tokens from now on."""
        tokens, versions = self._reply.tokens_of(self._index), self._versions
        if versions and versions[-1][0] == tokens:
            versions.pop()  # made no token of this choice
        if not versions or versions[-1][1] != version:
            versions.append((tokens, version))

    def resumed(self) -> None:
        """Hear that another worker goes on with the sequence."""
        self._resumed = True

    def step(self, token_ids: list[int], finish: pb.Finish | None) -> bool:
        """Take the tokens of one frame. Returns True when a stop string ended the choice before the engine did."""
        if not self._begun:
            self._begun = True
            self._reply.first_tokens()
        if self._token_by_token and len(token_ids) > 1:
            if any(self._take([token_id], None) for token_id in token_ids[:-1]):
                return True
            token_ids = token_ids[-1:]
        return self._take(token_ids, finish)

    def _take(self, token_ids: list[int], finish: pb.Finish | None) -> bool:
        if finish is None:
            text, kept, matched = self._text.step(token_ids, False, False)
            if matched is None:
                if self._logprobs is None:
                    self._reply.delta(self._index, text, token_ids, None)
                else:
                    self._reply.delta(self._index, text, token_ids, None, self._logprobs.take(kept))
                return False
        elif finish.reason == pb.FINISH_REASON_ERROR:
            self.fail(EngineFailed(finish.error_message or "The engine failed on this request."))
            return False
        else:
            text, kept, matched = self._text.step(token_ids, finish.reason == pb.FINISH_REASON_STOP, True)
        ending = _ending(finish) if matched is None and finish is not None else Finish("stop", matched)
        if self._resumed:
            ending = replace(ending, resumed=True)
        if self._versions:
            ending = replace(ending, weight_versions=self._spans(self._reply.tokens_of(self._index) + kept))
        logprobs = None if self._logprobs is None else self._logprobs.take(kept)
        self._reply.delta(self._index, text, token_ids[:kept], ending, logprobs)
        self._ended = True  # now: a reply that cannot take its last delta has yet to hear of that
        return True

    def _spans(self, tokens: int) -> list[WeightSpan] | None:
        known = [(start, version) for start, version in self._versions if start < tokens]
        if not all(version for _, version in known):
            return None
        ends = [start for start, _ in known[1:]] + [tokens]
        return [WeightSpan(version, start, end) for (start, version), end in zip(known, ends, strict=False)]

    def fail(self, error: TokenwireError) -> None:
        """Pass an error on, unless the choice has already ended."""
        if not self._ended:
            self._ended = True
            self._reply.fail(error)


class _Logprobs:
    """Log-probabilities that wait for the tokens they belong to."""

    __slots__ = ("_source", "_waiting")

    def __init__(self, source: LogprobSource) -> None:
        self._source = source
        self._waiting: list[ScoredPosition] = []

    def add(self, rows: pb.LogprobRows) -> None:
        self._waiting += self._source.decode(rows)

    def take(self, count: int) -> list[ScoredPosition]:
        taken, self._waiting = self._waiting[:count], self._waiting[count:]
        if len(taken) != count:
            raise EngineFailed("The worker did not send log-probabilities for each token.")
        return taken


def _ending(finish: pb.Finish) -> Finish:
    stop_id = finish.stop_token_id if finish.WhichOneof("matched") == "stop_token_id" else None
    if finish.reason == pb.FINISH_REASON_REPETITION:
        return Finish("repetition", _REPEATED)
    handed_on = json.loads(finish.kv_transfer_params_json) if finish.kv_transfer_params_json else None
    return Finish(_REASONS.get(finish.reason, "stop"), stop_id, handed_on)
