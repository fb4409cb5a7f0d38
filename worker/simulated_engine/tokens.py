"""Tokens of a simulated engine: each is a pure function of all ids before it and the seed.

A request that continues on another engine from its prompt and its tokens so far therefore gets the same tokens, as
with a deterministic model. A rolling hash of the context makes each token O(1).
"""

import hashlib
import math
from dataclasses import dataclass

from tokenwire.v1 import inference_pb2 as pb
from tokenwire.worker.simulated_engine.settings import BLOCK_SIZE

# 60 bits are two digits of a Python integer and 28 are one, so the arithmetic is a third cheaper than with 64.
_MASK = (1 << 60) - 1
_ROLL = 0xE3779B97F4A7C15
_DRAW_BITS = 28
_DRAW_SHIFT = 60 - _DRAW_BITS
_DRAW_MASK = (1 << _DRAW_BITS) - 1


def stable_hash(*parts: object) -> int:
    """Return a 60-bit hash that is the same in every process."""
    return int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=8).digest(), "big") & _MASK


def next_context(context: int, token: int) -> int:
    """Return the hash of a context and one more token."""
    return (context + token + 1) * _ROLL & _MASK


def hash_context(token_ids: list[int]) -> tuple[int, list[int]]:
    """Return the hash of a whole prompt, and the hashes at the end of each full block."""
    context = 0
    blocks: list[int] = []
    full = len(token_ids) - len(token_ids) % BLOCK_SIZE
    for start in range(0, full, BLOCK_SIZE):
        for token in token_ids[start : start + BLOCK_SIZE]:
            context = (context + token + 1) * _ROLL & _MASK
        blocks.append(context)
    for token in token_ids[full:]:
        context = (context + token + 1) * _ROLL & _MASK
    return context, blocks


@dataclass(frozen=True, slots=True)
class TokenDistribution:
    """The distribution from which a token is drawn."""

    words: tuple[int, ...]
    eos_token_id: int = 0
    eos_limit: int = 0
    """Draws below this are EOS."""


def eos_limit(rate: float) -> int:
    """Return the number of draws that are EOS at this rate."""
    return round(rate * (1 << _DRAW_BITS))


@dataclass(frozen=True, slots=True)
class Script:
    """Ids that are generated instead of drawn ones."""

    ids: tuple[int, ...]
    end: int | None = None
    """The id that follows all of them, again and again; None: they are repeated."""

    def part(self, start: int, count: int) -> list[int]:
        """Return some of the ids."""
        if self.end is None:
            return [self.ids[i % len(self.ids)] for i in range(start, start + count)]
        ids = list(self.ids[start : start + count])
        return ids + [self.end] * (count - len(ids))


@dataclass(frozen=True, slots=True)
class TokenRules:
    """A request's sampling rules, shared by all of its sequences."""

    choice: TokenDistribution
    early: TokenDistribution
    """The distribution before min_tokens, without ids that end the sequence."""
    stops: frozenset[int]
    """Ids that end the sequence, EOS among them unless it is ignored."""
    eos_token_id: int | None
    min_tokens: int
    max_tokens: int
    script: Script | None = None
    generator: bool = False
    """Whether tokens also depend on how many the sequence has drawn before."""
    fails: bool = False
    """Whether reaching max_tokens is an engine error."""


class TokenSource:
    """Draws one sequence's tokens ahead of the steps that report them."""

    __slots__ = ("_generated", "_key", "_rules", "_state", "context", "finish")

    def __init__(self, rules: TokenRules, context: int, key: int) -> None:
        self._rules = rules
        self._key = key & _DRAW_MASK
        self._state = key
        """State of the sequence's own generator, if it has one."""
        self._generated = 0
        self.context = context
        """Hash of the prompt and all tokens drawn."""
        self.finish: pb.Finish | None = None
        """Set once the last token is drawn."""

    def take(self, count: int) -> list[int]:
        """Draw the next tokens: at least one, at most count."""
        rules = self._rules
        early = self._generated < rules.min_tokens
        bound = rules.min_tokens if early else rules.max_tokens
        count = min(count, bound - self._generated)
        if rules.script is None:
            ids = self._draw(count, rules.early if early else rules.choice)
        else:
            ids = self._next_scripted(rules.script, count)
        if not early and not rules.stops.isdisjoint(ids):
            self._stop(ids)
        self._generated += len(ids)
        if self.finish is None and self._generated == rules.max_tokens:
            self.finish = _limit_finish(rules.fails)
        return ids

    def _draw(self, count: int, choice: TokenDistribution) -> list[int]:
        context, key = self.context, self._key
        words, size, limit = choice.words, len(choice.words), choice.eos_limit
        ids: list[int] = []
        generator = self._rules.generator
        for _ in range(count):
            if generator:
                self._state = key = (self._state * _ROLL + 1) & _MASK
                key >>= _DRAW_SHIFT
            draw = context >> _DRAW_SHIFT ^ key
            token = words[draw % size] if draw >= limit else choice.eos_token_id
            context = (context + token + 1) * _ROLL & _MASK
            ids.append(token)
        self.context = context
        return ids

    def _next_scripted(self, script: Script, count: int) -> list[int]:
        ids = script.part(self._generated, count)
        for token in ids:
            self.context = (self.context + token + 1) * _ROLL & _MASK
        return ids

    def _stop(self, ids: list[int]) -> None:
        last = next(i for i, token in enumerate(ids) if token in self._rules.stops)
        del ids[last + 1 :]
        token = ids[last]
        self.finish = pb.Finish(reason=pb.FINISH_REASON_STOP)
        if token == self._rules.eos_token_id:
            self.finish.eos_token_id = token
        else:
            self.finish.stop_token_id = token


def _limit_finish(fails: bool) -> pb.Finish:
    if fails:
        return pb.Finish(reason=pb.FINISH_REASON_ERROR, error_message="a simulated fault hit this request")
    return pb.Finish(reason=pb.FINISH_REASON_LENGTH)


@dataclass(frozen=True, slots=True)
class LogprobShape:
    """The log-probabilities that a request includes."""

    likeliest: int
    exact: tuple[int, ...] = ()
    """Ids to report instead of the likeliest."""
    greedy: bool = False


_SCORES = [(math.log1p(-ratio), math.log(ratio)) for ratio in (0.1 + bits / 512 for bits in range(256))]
"""The log-probability of the likeliest token, and what each rank below has less, by some bits of the context."""
_SECOND = 3
"""Where the last two bits of the context are these, the second token is sampled, unless it is greedily."""


def sampled_logprobs(greedy: bool, context: int, token_ids: list[int]) -> list[float]:
    """Return the log-probabilities of tokens after a context: those that `logprob_rows` begin with."""
    scores = []
    for token in token_ids:
        bits = context * _ROLL >> _DRAW_SHIFT & _DRAW_MASK
        first, fall = _SCORES[bits >> 8 & 0xFF]
        scores.append(first + fall if bits & _SECOND == _SECOND and not greedy else first)
        context = (context + token + 1) * _ROLL & _MASK
    return scores


def logprob_rows(shape: LogprobShape, words: tuple[int, ...], sampled: list[tuple[int, int]]) -> pb.LogprobRows:
    """Return the rows for (context hash, sampled token) pairs.

    Probabilities decrease geometrically with the rank, so a row is part of a valid distribution; as in vLLM,
    a sampled token that is among the likeliest appears twice.
    """
    columns = len(shape.exact) or min(shape.likeliest, len(words))
    rows = pb.LogprobRows(width=1 + columns)
    for context, token in sampled:
        bits = context * _ROLL >> _DRAW_SHIFT & _DRAW_MASK
        rank = 2 if bits & _SECOND == _SECOND and not shape.greedy else 1
        first, fall = _SCORES[bits >> 8 & 0xFF]
        ranked = _ranked(words, bits, rank, token, columns)
        rows.token_ids.append(token)
        rows.logprobs.append(first + (rank - 1) * fall)
        rows.sampled_ranks.append(rank)
        for place in range(columns):
            other = shape.exact[place] if shape.exact else ranked[place]
            guess = rank if other == token else place + 1 + (shape.exact != () and place + 1 >= rank)
            rows.token_ids.append(other)
            rows.logprobs.append(first + (guess - 1) * fall)
    return rows


def _ranked(words: tuple[int, ...], bits: int, rank: int, token: int, columns: int) -> list[int]:
    """Return the likeliest ids in order, the sampled one at its rank."""
    start = bits % len(words)
    others = (words[(start + i) % len(words)] for i in range(len(words)))
    rest = [other for _, other in zip(range(columns + 1), others, strict=False) if other != token]
    rest.insert(rank - 1, token)
    return rest[:columns]
