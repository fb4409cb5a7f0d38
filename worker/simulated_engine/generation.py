"""One sequence on its way through a simulated engine."""

import enum

from tokenwire.v1 import inference_pb2 as pb
from tokenwire.worker.engine import Sequence
from tokenwire.worker.simulated_engine.prefix_hashes import PrefixHashes
from tokenwire.worker.simulated_engine.tokens import LogprobShape, TokenSource


class Phase(enum.Enum):
    """Where a sequence is in its life."""

    WAITING = enum.auto()
    PREFILL = enum.auto()
    RUNNING = enum.auto()
    DONE = enum.auto()


class Generation:
    """A sequence's context, its next tokens and the KV blocks it holds."""

    __slots__ = (
        "arrival",
        "chunk",
        "computed",
        "drawn",
        "hashes",
        "logprobs",
        "missing",
        "names",
        "phase",
        "priority",
        "private",
        "prompt_logprobs",
        "reads_cache",
        "room",
        "row_context",
        "scope",
        "sealed",
        "sequence",
        "source",
        "started",
    )

    def __init__(self, sequence: Sequence, source: TokenSource, prompt_len: int, hashes: list[int], scope: int) -> None:
        self.sequence = sequence
        self.source = source
        self.hashes = hashes
        """Hashes of the context's full blocks."""
        self.scope = scope
        """Sets the blocks apart that may not be shared with other requests."""
        self.drawn = prompt_len
        """Length of the context, tokens that wait in the chunk included."""
        self.chunk: list[list[int]] = []
        """Next tokens, last one first, each in the list that a step hands out."""
        self.room = 0
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
        self.logprobs: LogprobShape | None = None
        self.row_context = 0
        self.prompt_logprobs: pb.LogprobRows | None = None
        self.names: PrefixHashes | None = None
        """Where somebody wants to know what the cache holds."""

    @property
    def length(self) -> int:
        """Length of the context so far, prompt and tokens that came out."""
        return self.drawn - len(self.chunk)

    def name_of(self, block: int) -> int | None:
        """Return the name of the prefix that ends with a block of the context, if it has one."""
        return None if self.names is None else self.names.at(block)

    def draw(self) -> None:
        """Fill the chunk; a sequence with log-probabilities goes one token at a time, as each row needs its context."""
        if self.logprobs is not None:
            self.row_context = self.source.context
        ids = self.source.take(self.room if self.logprobs is None else 1)
        self.drawn += len(ids)
        self.room -= len(ids)
        if self.names is not None:
            self.names.add(ids)
        # In place: the batch keeps a reference to this very list.
        ids.reverse()
        self.chunk += [[token] for token in ids]
