"""The sequences that a plain vLLM server generates: each is its own streamed request."""

import asyncio
import json
import logging
import uuid
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Any

from tokenwire.coordinator.fleet.transport.vllm_http.health import ServerHealth
from tokenwire.coordinator.fleet.transport.vllm_http.http_client import VllmHttpClient
from tokenwire.coordinator.fleet.transport.vllm_http.json_stream import LongParts
from tokenwire.coordinator.fleet.transport.vllm_http.media_body import MediaPart
from tokenwire.coordinator.fleet.transport.vllm_http.request import (
    ABORT,
    GENERATE,
    headers_of,
    needs_full_response,
)
from tokenwire.coordinator.fleet.transport.vllm_http.request_body import SharedBody
from tokenwire.coordinator.fleet.transport.vllm_http.response import PromptScores, finish_of, row_of_token
from tokenwire.coordinator.fleet.transport.vllm_http.server_media import ServerMedia
from tokenwire.coordinator.fleet.transport.vllm_http.token_buffer import TokenBuffer
from tokenwire.errors import TokenwireError, WorkerLost
from tokenwire.process.pace import Pace
from tokenwire.v1 import inference_pb2 as pb

log = logging.getLogger(__name__)

_SERVER_PREFIX = "generate-tokens-"
"""The prefix that the server adds to our request ids."""
_ABORT_S = 5.0
_MOST_BEGUN = 8
"""Requests that begin in one turn of the event loop: each takes about half a millisecond."""
_MOST_SPAWNED = 256
_TOKENS_AT_ONCE = 512
"""Of a response that is not streamed, and of which each token has log-probabilities."""

Spawn = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]


@dataclass(slots=True, eq=False)
class _Sequence:
    slot: int
    index: int
    submit: pb.Submit
    body: SharedBody
    request_id: str
    task: asyncio.Task[None] | None = None
    began: bool = False
    """Whether it has output: before that the server may not have its id yet."""
    aborted: bool = False
    """Whether this coordinator aborted it."""


class Sequences:
    """Starts sequences, aborts them, and puts their output into frames."""

    def __init__(
        self,
        server: VllmHttpClient,
        address: str,
        frames: TokenBuffer,
        health: ServerHealth,
        media: ServerMedia,
        spawn: Spawn,
    ) -> None:
        """`spawn` runs a task until the session ends."""
        self._server = server
        self._media = media
        self._address = address
        self._frames = frames
        self._health = health
        self._spawn = spawn
        self._by_slot: dict[int, _Sequence] = {}
        self._pace = Pace(_MOST_BEGUN)
        self.model = ""
        """The name that requests have for the model, once it is known."""
        self.eos_token_ids: frozenset[int] = frozenset()

    async def begin(self, submit: pb.Submit) -> None:
        """Start the sequences of a request, with turns for others; all of them can be aborted from the first one on."""
        body, attempt = SharedBody(submit, self.model), uuid.uuid4().hex[:12]
        # A unique id for each sequence and attempt, so that an abort affects nothing else.
        sequences = [
            _Sequence(slot, index, submit, body, f"{submit.request_id}-{attempt}-{index}")
            for index, slot in enumerate(submit.slots)
        ]
        self._by_slot.update((sequence.slot, sequence) for sequence in sequences)
        for number, sequence in enumerate(sequences, 1):
            if self._by_slot.get(sequence.slot) is sequence:
                sequence.task = self._spawn(self._generate(sequence))
            if number % _MOST_SPAWNED == 0:
                await asyncio.sleep(0)

    def abort(self, slots: Iterable[int]) -> None:
        """Abort those of the slots that are sequences."""
        self._abort([self._by_slot[slot] for slot in slots if slot in self._by_slot])

    def abort_by_id(self, request_ids: frozenset[str] | None) -> int:
        """Abort requests by their ids, None: all; return the number of sequences."""
        everything = list(self._by_slot.values())
        found = [each for each in everything if request_ids is None or each.submit.request_id in request_ids]
        self._abort(found)
        return len(found)

    def _abort(self, sequences: list[_Sequence]) -> None:
        if begun := [sequence for sequence in sequences if sequence.began]:
            self._spawn(self._request_abort(begun))
        for sequence in sequences:
            sequence.aborted = True
            if not sequence.began:
                self._disconnect(sequence)

    async def _request_abort(self, sequences: list[_Sequence]) -> None:
        tasks = [sequence.task for sequence in sequences if sequence.task is not None]
        try:
            ids = [_SERVER_PREFIX + sequence.request_id for sequence in sequences]
            await self._server.post(ABORT, {"request_ids": ids})
            await asyncio.wait(tasks, timeout=_ABORT_S)
        except TokenwireError as error:
            log.warning("worker %s did not abort: %s", self._address, error.message)
        finally:
            for sequence in sequences:
                self._disconnect(sequence)

    def _disconnect(self, sequence: _Sequence) -> None:
        """Abort a sequence by closing its connection."""
        if self._by_slot.get(sequence.slot) is sequence:
            del self._by_slot[sequence.slot]
            if sequence.task is not None:
                sequence.task.cancel()
            self._frames.finish(pb.Finish(slot=sequence.slot, reason=pb.FINISH_REASON_ABORT))

    # One sequence.

    async def _generate(self, sequence: _Sequence) -> None:
        submit = sequence.submit
        try:
            async with sequence.body.places:
                if (turn := self._pace.begin(submit.request_id)) is not None:
                    await turn
                body = await sequence.body.of(sequence.request_id, sequence.index)
                generate = partial(self._full if needs_full_response(submit) else self._streamed, sequence, body)
                finish = await (self._media.send(submit.media, generate) if submit.media else generate())
        except Exception as error:
            if (failure := await self._health.failure(error)) is not None:
                self._end(sequence)
                self._frames.fail([sequence.slot], failure)
            return
        self._end(sequence)
        self._frames.finish(finish)

    async def _streamed(self, sequence: _Sequence, body: Sequence[bytes], parts: Sequence[MediaPart] = ()) -> pb.Finish:
        finish: pb.Finish | None = None
        count = sequence.submit.sampling_params.logprobs
        # Read to the end of the stream, so that its connection can be used again.
        async with aclosing(self._server.stream(GENERATE, body, headers_of(sequence.submit), parts)) as events:
            async for event in events:
                for choice in event["choices"]:
                    scored = (choice.get("logprobs") or {}).get("content") or ()
                    self._prefilled(sequence, pb.PrefillInfo(slot=sequence.slot))
                    token_ids = _token_ids(choice)
                    self._frames.add(sequence.slot, token_ids, [row_of_token(each, count) for each in scored])
                    if choice.get("finish_reason") is not None:
                        finish = self._finish(sequence, choice)
        if finish is None:
            raise WorkerLost("the stream ended without a finish reason")
        return finish

    async def _full(self, sequence: _Sequence, body: Sequence[bytes], parts: Sequence[MediaPart] = ()) -> pb.Finish:
        params, rows, scores = sequence.submit.sampling_params, list[pb.LogprobRows](), PromptScores()
        content = {"content": lambda each: rows.append(row_of_token(each, params.logprobs))}
        long: LongParts = {"prompt_logprobs": scores.add, "choices": {"logprobs": content}}
        response = await self._server.post_long(GENERATE, body, headers_of(sequence.submit), long, parts)
        (choice,) = response["choices"]
        info = pb.PrefillInfo(slot=sequence.slot)
        if params.HasField("prompt_logprobs") and len(scores):
            prompt = response.get("prompt_token_ids") or sequence.submit.prompt_token_ids  # expanded, with media
            info.prompt_logprobs.CopyFrom(await scores.rows(prompt, params.prompt_logprobs))
        self._prefilled(sequence, info)
        token_ids = _token_ids(choice)
        for start in range(0, len(token_ids), _TOKENS_AT_ONCE):
            end = start + _TOKENS_AT_ONCE
            self._frames.add(sequence.slot, token_ids[start:end], rows[start:end])
            await asyncio.sleep(0)
        finish = self._finish(sequence, choice)
        if response.get("kv_transfer_params"):
            finish.kv_transfer_params_json = json.dumps(response["kv_transfer_params"])
        return finish

    def _prefilled(self, sequence: _Sequence, info: pb.PrefillInfo) -> None:
        self._health.had_output = True
        if not sequence.began:
            sequence.began = True
            self._frames.prefilled(info)

    def _finish(self, sequence: _Sequence, choice: dict[str, Any]) -> pb.Finish:
        if choice["finish_reason"] == "abort" and not sequence.aborted:
            raise WorkerLost("the server aborted the request")  # as a terminating server does
        stop_token_ids = sequence.submit.sampling_params.stop_token_ids
        return finish_of(choice, sequence.slot, self.eos_token_ids, stop_token_ids)

    def _end(self, sequence: _Sequence) -> None:
        if self._by_slot.get(sequence.slot) is sequence:
            del self._by_slot[sequence.slot]


def _token_ids(choice: dict[str, Any]) -> list[int]:
    return [int(token_id) for token_id in choice.get("token_ids") or ()]
