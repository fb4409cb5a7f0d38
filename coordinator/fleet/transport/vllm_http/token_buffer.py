"""Buffers the output of a plain vLLM server and merges it into frames, as a worker does."""

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from tokenwire.errors import EngineFailed, MediaMissing, TokenwireError, Unavailable
from tokenwire.v1 import inference_pb2 as pb


@dataclass(slots=True)
class _UnsentTokens:
    token_ids: list[int] = field(default_factory=list)
    rows: list[pb.LogprobRows] = field(default_factory=list)
    prefill: pb.PrefillInfo | None = None
    finish: pb.Finish | None = None


class TokenBuffer:
    """Buffers the tokens of all slots until they are taken."""

    def __init__(self) -> None:
        self._unsent: dict[int, _UnsentTokens] = {}
        self._refusals: deque[pb.Refusal] = deque()
        self._end: TokenwireError | None = None
        self._arrived = asyncio.Event()

    def prefilled(self, info: pb.PrefillInfo) -> None:
        """Add a slot's prefill info, before its first tokens."""
        self._of(info.slot).prefill = info

    def add(self, slot: int, token_ids: list[int], rows: list[pb.LogprobRows]) -> None:
        """Add tokens of a slot, with their logprobs."""
        unsent = self._of(slot)
        unsent.token_ids += token_ids
        for each in rows:
            if unsent.rows and unsent.rows[-1].width == each.width:
                unsent.rows[-1].MergeFrom(each)  # one message for many tokens takes a fraction of one for each
            else:
                unsent.rows.append(each)

    def finish(self, finish: pb.Finish) -> None:
        """Finish a slot, after its tokens."""
        self._of(finish.slot).finish = finish

    def fail(self, slots: Sequence[int], error: TokenwireError) -> None:
        """End slots with an error, after their tokens: the engine's in place of an end, any other as a refusal."""
        if isinstance(error, EngineFailed):
            for slot in slots:
                self.finish(pb.Finish(slot=slot, reason=pb.FINISH_REASON_ERROR, error_message=error.message))
        elif slots:
            refusal = pb.Refusal(slots=slots, code=error.refusal_code, message=error.message, param=error.param)
            if isinstance(error, MediaMissing):
                refusal.missing.extend(error.missing)
            self._refusals.append(refusal)
            self._arrived.set()

    def close(self, reason: str) -> None:
        """Close the buffer with the reason that `take` raises."""
        self._end = Unavailable(reason)
        self._arrived.set()

    async def take(self) -> pb.SessionResponse:
        """Wait for the next event. Raises Unavailable once closed and empty."""
        await self._arrived.wait()
        if self._unsent:
            return pb.SessionResponse(frame=self._frame())
        if self._refusals:
            return pb.SessionResponse(refusal=self._refusals.popleft())
        if self._end is not None:
            raise self._end
        self._arrived.clear()
        return await self.take()

    def _frame(self) -> pb.StepFrame:
        frame = pb.StepFrame()
        for slot, unsent in self._unsent.items():
            if unsent.prefill is not None:
                frame.prefills.append(unsent.prefill)
            frame.logprobs.extend(pb.Logprobs(slot=slot, rows=rows) for rows in unsent.rows)
            if unsent.token_ids:
                frame.slots.append(slot)
                frame.counts.append(len(unsent.token_ids))
                frame.token_ids.extend(unsent.token_ids)
            if unsent.finish is not None:
                frame.finishes.append(unsent.finish)
        self._unsent.clear()
        return frame

    def _of(self, slot: int) -> _UnsentTokens:
        self._arrived.set()
        return self._unsent.setdefault(slot, _UnsentTokens())
