"""The reply to a pooling request: collects the result of every input until all have ended."""

import asyncio
import math
from collections.abc import Sequence

from tokenwire.coordinator.pooling.types import PooledResult
from tokenwire.errors import EngineFailed, ProtocolError, TokenwireError, Unavailable
from tokenwire.protocol.vllm_names import NUMBER_BYTES
from tokenwire.v1 import inference_pb2 as pb


class PooledReply:
    """Collects results; `wait` returns them when the last one has come."""

    def __init__(self, most_numbers: Sequence[int], dtype: str) -> None:
        """`most_numbers`: of each input's result, by what its model announces."""
        self._most_numbers = most_numbers
        self._results: list[PooledResult | None] = [None] * len(most_numbers)
        self._open = len(most_numbers)
        self._number_bytes = NUMBER_BYTES[dtype]
        self._done: asyncio.Future[TokenwireError | None] = asyncio.get_running_loop().create_future()
        self.failure: TokenwireError | None = None
        """The first error."""

    def add(self, index: int, result: pb.Pooled) -> None:
        """Add the result of an input. Raises ProtocolError if it is none."""
        shape, data = result.shape, result.data
        count = math.prod(shape) if len(shape) <= 2 else 0  # of very many it would take minutes
        if not 0 < count <= self._most_numbers[index] or len(data) != count * self._number_bytes or not shape:
            raise ProtocolError(f"the worker sent {len(data)} bytes for a result of shape {[*shape[:4]]}")
        self._results[index] = PooledResult(shape[:], data, result.cached_tokens)
        self._open -= 1
        if not self._open:
            self._end(None)

    def fail(self, error: TokenwireError) -> None:
        """End `wait` with the first error."""
        self._end(error)

    def give_up(self) -> None:
        """End `wait`, because the client has disconnected."""
        self._end(None)

    async def wait(self) -> list[PooledResult]:
        """Wait for the last result. Raises the error of the first one that failed; returns fewer if it was given up."""
        error = await self._done
        if error is not None:
            raise error
        return [result for result in self._results if result is not None]

    def _end(self, error: TokenwireError | None) -> None:
        if not self._done.done():
            self.failure = error
            self._done.set_result(error)


class InputListener:
    """Receives one input's result; a SlotListener."""

    __slots__ = ("_index", "_reply", "cached_tokens")

    gained = 0

    def __init__(self, index: int, reply: PooledReply) -> None:
        self._index = index
        self._reply = reply
        self.cached_tokens = 0

    def prefilled(self, info: pb.PrefillInfo) -> None:
        """Do nothing: the result says how it was computed."""

    def scored(self, rows: pb.LogprobRows) -> None:
        """Reject what nobody asked for."""
        raise ProtocolError("the worker sent log-probabilities for an input that it pools")

    def weights(self, version: str) -> None:
        """Do nothing: results name no version."""

    def resumed(self) -> None:
        """Do nothing: an input is computed again as a whole."""

    def step(self, token_ids: list[int], finish: pb.Finish | None) -> bool:
        """Take the result, or the error in its place."""
        if token_ids or finish is None:
            raise ProtocolError("the worker sent tokens for an input that it pools")
        if finish.HasField("pooled"):
            pooled = finish.pooled
            self.cached_tokens = pooled.cached_tokens
            self._reply.add(self._index, pooled)
        elif finish.reason == pb.FINISH_REASON_ABORT:
            self._reply.fail(Unavailable("The request was aborted.", retry_after_s=1))
        elif finish.reason == pb.FINISH_REASON_ERROR:
            self._reply.fail(EngineFailed(finish.error_message))
        else:
            raise ProtocolError("the worker ended an input that it pools without a result")
        return False

    def fail(self, error: TokenwireError) -> None:
        """Fail the reply."""
        self._reply.fail(error)
