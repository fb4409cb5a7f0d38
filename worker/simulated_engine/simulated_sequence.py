"""The state of one sequence in a simulated engine."""

import enum

from tokenwire.v1 import inference_pb2 as pb
from tokenwire.worker.engine.interface import EngineSequence
from tokenwire.worker.simulated_engine.prefix_hashes import PrefixHashes
from tokenwire.worker.simulated_engine.tokens import LogprobShape, TokenSource, sampled_logprobs


class Phase(enum.Enum):
    """Phase of a sequence."""

    WAITING = enum.auto()
    PREFILL = enum.auto()
    RUNNING = enum.auto()
    DONE = enum.auto()


class SimulatedSequence:
    """A sequence's context, its next tokens and the KV blocks it holds."""

    __slots__ = (
        "arrival",
        "block_space",
        "chunk",
        "computed",
        "drawn",
        "hashes",
        "is_greedy",
        "logprobs",
        "missing",
        "phase",
        "prefix_hashes",
        "priority",
        "private",
        "prompt_logprobs",
        "reads_cache",
        "row_context",
        "scope",
        "scores",
        "sealed",
        "sequence",
        "source",
        "started",
    )

    def __init__(
        self, sequence: EngineSequence, source: TokenSource, prompt_len: int, hashes: list[int], scope: int
    ) -> None:
        self.sequence = sequence
        self.source = source
        self.hashes = hashes
        """Hashes of the context's full blocks."""
        self.scope = scope
        """Separates blocks that must not be shared with other requests."""
        self.drawn = prompt_len
        """Length of the context, tokens in the chunk included."""
        self.chunk: list[list[int]] = []
        """Next tokens in reverse order, each in the list that a step returns."""
        self.block_space = 0
        """Tokens that may still be drawn for the current block."""
        self.phase = Phase.WAITING
        self.missing = 0
        """Context tokens to compute before the sequence runs."""
        self.sealed = 0
        self.private = 0
        self.arrival = 0
        self.priority = 0
        self.started = False
        self.reads_cache = True
        self.is_greedy = False
        """Whether the likeliest token is sampled, as log-probabilities say."""
        self.logprobs: LogprobShape | None = None
        """None also if the sequence has `scores`."""
        self.row_context = 0
        self.scores: list[list[float]] | None = None
        """Log-probabilities of the chunk's tokens, likewise; None if only tokens are returned, or rows."""
        self.prompt_logprobs: pb.LogprobRows | None = None
        self.prefix_hashes: PrefixHashes | None = None
        """Only set if KV events are published."""

    @property
    def length(self) -> int:
        """Length of the context so far: prompt and reported tokens."""
        return self.drawn - len(self.chunk)

    def prefix_hash_of(self, block: int) -> int | None:
        """Return the hash of the prefix that ends with a block of the context, if it has one."""
        return None if self.prefix_hashes is None else self.prefix_hashes.at(block)

    def draw(self) -> None:
        """Fill the chunk; sequences with rows of log-probabilities draw one by one, as a row needs its context."""
        context = self.source.context
        if self.logprobs is not None:
            self.row_context = context
        ids = self.source.take(self.block_space if self.logprobs is None else 1)
        if self.scores is not None:
            scores = sampled_logprobs(self.is_greedy, context, ids)
            scores.reverse()
            self.scores += [[score] for score in scores]
        self.drawn += len(ids)
        self.block_space -= len(ids)
        if self.prefix_hashes is not None:
            self.prefix_hashes.add(ids)
        # In place, because the batch refers to this list.
        ids.reverse()
        self.chunk += [[token] for token in ids]
