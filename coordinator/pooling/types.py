"""The types of a pooling request, which every route translates to, and of its results."""

from array import array
from collections.abc import Sequence
from typing import Literal, NamedTuple

from tokenwire.coordinator.types import ChatPrompt, TextPrompt, TokenPrompt, Truncation
from tokenwire.process.value_class import value_class
from tokenwire.v1 import inference_pb2 as pb

NumberType = Literal["float32", "float16", "bfloat16", "fp8_e4m3", "fp8_e5m2"]


@value_class
class TextPair:
    """Two texts that are tokenized together, the second with token types of its own."""

    first: str
    second: str


Input = TextPrompt | TokenPrompt | ChatPrompt | TextPair


@value_class
class PoolingRequest:
    """One request of any route. Each input has one result."""

    request_id: str
    inputs: Sequence[Input]
    params: pb.PoolingParams
    add_special_tokens: bool = True
    """To texts, and to what a template renders; pairs always have them."""
    truncation: Truncation | None = None
    cuts_second: bool = False
    """Whether only the second text of a pair is truncated, unless a side is given."""
    pads: bool = False
    """Whether inputs are padded to the longest that the model takes."""
    max_tokens: int | None = None
    """Of an input; None: the model's context."""
    priority: int = 0
    cache_salt: str | None = None
    bytes_per_number: int = 8
    """What each number of the results takes until the response is sent."""
    repeated_bytes: int = 0
    """What texts take that the response repeats."""


class PooledResult(NamedTuple):
    """The result of an input. Of its message nothing is kept: that would keep what came with it, too."""

    shape: Sequence[int]
    data: bytes
    cached_tokens: int


@value_class
class Results:
    """The results of a request, in the order of its inputs."""

    request_id: str
    pooled: Sequence[PooledResult]
    lengths: Sequence[int]
    """Tokens of each input."""

    @property
    def prompt_tokens(self) -> int:
        """Tokens of all inputs."""
        return sum(self.lengths)

    def vector(self, index: int) -> "array[float]":
        """Return the numbers of a result of type float32, row after row."""
        return numbers(self.pooled[index].data)


def numbers(data: bytes) -> "array[float]":
    """Return the numbers of little-endian float32 data."""
    values = array("f")
    values.frombytes(data)
    return values
