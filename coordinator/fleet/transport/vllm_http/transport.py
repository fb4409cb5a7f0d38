"""The transport to a plain vLLM server: each sequence is its own streamed request."""

import asyncio
import json
import logging
import uuid
from collections.abc import Coroutine
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from tokenwire.coordinator.fleet.transport.base import Commands
from tokenwire.coordinator.fleet.transport.vllm_http.control_stub import vllm_http_control
from tokenwire.coordinator.fleet.transport.vllm_http.http_client import VllmHttpClient
from tokenwire.coordinator.fleet.transport.vllm_http.model_info import ModelDirectoryConfig
from tokenwire.coordinator.fleet.transport.vllm_http.request import body_of, headers_of, needs_full_response
from tokenwire.coordinator.fleet.transport.vllm_http.response import finish_of, rows_of_choice, rows_of_prompt
from tokenwire.coordinator.fleet.transport.vllm_http.settings import VllmHttpSettings
from tokenwire.coordinator.fleet.transport.vllm_http.token_buffer import TokenBuffer
from tokenwire.errors import EngineFailed, InvalidRequest, TokenwireError, Unavailable, Unsupported, WorkerLost
from tokenwire.protocol.version import protocol_version
from tokenwire.v1 import inference_pb2 as pb

log = logging.getLogger(__name__)

_GENERATE, _ABORT = "/inference/v1/generate", "/inference/v1/abort_requests"
_SERVER_PREFIX = "generate-tokens-"
"""The prefix that the server adds to our request ids."""
_CHECK_S = 5.0
_TRIES = 2
"""A server may be busy briefly."""
_ABORT_S = 5.0


@dataclass(slots=True, eq=False)
class _Sequence:
    slot: int
    index: int
    submit: pb.Submit
    request_id: str
    task: asyncio.Task[None] | None = None
    began: bool = False
    """Whether it has output: before that the server may not have its id yet."""
    aborted: bool = False
    """Whether this coordinator aborted it."""


class VllmHttpTransport:
    """Emulates a worker's session: a welcome first, then frames."""

    def __init__(self, settings: VllmHttpSettings, address: str, commands: Commands) -> None:
        self._settings = settings
        self._address = address
        self._commands = commands
        self._server = VllmHttpClient(address, settings.key)
        self._instance_id = uuid.uuid4().hex
        self._frames = TokenBuffer()
        self._sequences: dict[int, _Sequence] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._directory: ModelDirectoryConfig | None = None
        self._model = ""
        self._had_output = True
        """Whether tokens arrived since the last health check."""
        self.control = vllm_http_control(address, self._abort_by_id, self._server.text)

    @property
    def media(self) -> None:
        """It gets no media."""

    async def read(self) -> pb.SessionResponse | None:
        """Return the welcome, then frames and refusals."""
        if self._directory is None:
            return await self._connect()
        return await self._frames.take()

    async def fetch_tokenizer(self) -> dict[str, bytes]:
        """Raise Unsupported: there is no such route."""
        raise Unsupported("a plain vLLM server does not serve tokenizer files: set --tokenizer DIR")

    async def close(self) -> None:
        """Close all connections, which aborts all requests."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._server.close()

    # Connecting.

    async def _connect(self) -> pb.SessionResponse:
        if self._settings.tokenizer is None:
            raise InvalidRequest("a plain vLLM server needs --tokenizer DIR, the directory of its model")
        directory = ModelDirectoryConfig(self._settings.tokenizer)
        await self._server.get("/health")
        model = directory.describe(
            await self._server.get("/v1/models"), (await self._server.get("/version"))["version"]
        )
        try:
            await self._server.post(_ABORT, {"request_ids": []})
        except TokenwireError as error:
            raise Unavailable(
                f"the server has no token id routes, start it with --enable-scale-out: {error.message}"
            ) from error
        self._directory, self._model = directory, model.names[0]
        self._spawn(self._closing(self._handle()))
        self._spawn(self._closing(self._watch()))
        welcome = pb.Welcome(protocol=protocol_version(), instance_id=self._instance_id, model=model)
        return pb.SessionResponse(welcome=welcome)

    # Commands.

    async def _handle(self) -> None:
        async for command in self._commands:
            match command.WhichOneof("command"):
                case "submit":
                    for index, slot in enumerate(command.submit.slots):
                        self._begin(slot, index, command.submit)
                case "abort":
                    self._abort([self._sequences[slot] for slot in command.abort.slots if slot in self._sequences])

    def _begin(self, slot: int, index: int, submit: pb.Submit) -> None:
        # A unique id for each sequence and attempt, so that an abort affects nothing else.
        request_id = f"{submit.request_id}-{uuid.uuid4().hex[:12]}"
        sequence = self._sequences[slot] = _Sequence(slot, index, submit, request_id)
        sequence.task = self._spawn(self._generate(sequence))

    def _abort_by_id(self, request_ids: frozenset[str] | None) -> int:
        everything = list(self._sequences.values())
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
            await self._server.post(_ABORT, {"request_ids": ids})
            await asyncio.wait(tasks, timeout=_ABORT_S)
        except TokenwireError as error:
            log.warning("worker %s did not abort: %s", self._address, error.message)
        finally:
            for sequence in sequences:
                self._disconnect(sequence)

    def _disconnect(self, sequence: _Sequence) -> None:
        """Abort a sequence by closing its connection."""
        if self._sequences.get(sequence.slot) is sequence and sequence.task is not None:
            del self._sequences[sequence.slot]
            sequence.task.cancel()
            self._frames.finish(pb.Finish(slot=sequence.slot, reason=pb.FINISH_REASON_ABORT))

    # One sequence.

    async def _generate(self, sequence: _Sequence) -> None:
        slot, submit = sequence.slot, sequence.submit
        try:
            body = body_of(submit, sequence.request_id, sequence.index, self._model)
            finish = await (self._full if needs_full_response(submit) else self._streamed)(sequence, body)
        except EngineFailed as error:
            finish = pb.Finish(slot=slot, reason=pb.FINISH_REASON_ERROR, error_message=error.message)
        except WorkerLost as error:
            if not await self._check_health():
                return  # the whole server is lost, and the session ends
            self._end(sequence)
            message = f"The worker that generated this reply was lost ({error.message})."
            return self._frames.refuse(slot, Unavailable(message, retry_after_s=1))
        except TokenwireError as error:
            self._end(sequence)
            return self._frames.refuse(slot, error)
        except Exception as error:
            log.exception("invalid response of %s", self._address)
            finish = pb.Finish(
                slot=slot, reason=pb.FINISH_REASON_ERROR, error_message=f"The server's response is invalid: {error!r}"
            )
        self._end(sequence)
        self._frames.finish(finish)

    async def _streamed(self, sequence: _Sequence, body: dict[str, Any]) -> pb.Finish:
        finish: pb.Finish | None = None
        # Read to the end of the stream, so that its connection can be used again.
        async with aclosing(self._server.stream(_GENERATE, body, headers_of(sequence.submit))) as events:
            async for event in events:
                for choice in event["choices"]:
                    self._take(sequence, choice, pb.PrefillInfo(slot=sequence.slot))
                    if choice.get("finish_reason") is not None:
                        finish = self._finish(sequence, choice)
        if finish is None:
            raise WorkerLost("the stream ended without a finish reason")
        return finish

    async def _full(self, sequence: _Sequence, body: dict[str, Any]) -> pb.Finish:
        response = await self._server.post(_GENERATE, body, headers_of(sequence.submit))
        params, (choice,) = sequence.submit.sampling_params, response["choices"]
        info = pb.PrefillInfo(slot=sequence.slot)
        if params.HasField("prompt_logprobs") and response.get("prompt_logprobs"):
            positions, prompt = response.pop("prompt_logprobs"), sequence.submit.prompt_token_ids
            info.prompt_logprobs.CopyFrom(await rows_of_prompt(positions, prompt, params.prompt_logprobs))
            del positions
        self._take(sequence, choice, info)
        finish = self._finish(sequence, choice)
        if response.get("kv_transfer_params"):
            finish.kv_transfer_params_json = json.dumps(response["kv_transfer_params"])
        return finish

    def _take(self, sequence: _Sequence, choice: dict[str, Any], info: pb.PrefillInfo) -> None:
        self._had_output = True
        if not sequence.began:
            sequence.began = True
            self._frames.prefilled(info)
        rows = rows_of_choice(choice.get("logprobs"), sequence.submit.sampling_params.logprobs)
        self._frames.add(sequence.slot, [int(token_id) for token_id in choice.get("token_ids") or ()], rows)

    def _finish(self, sequence: _Sequence, choice: dict[str, Any]) -> pb.Finish:
        assert self._directory is not None
        if choice["finish_reason"] == "abort" and not sequence.aborted:
            raise WorkerLost("the server aborted the request")  # as a terminating server does
        stop_token_ids = sequence.submit.sampling_params.stop_token_ids
        return finish_of(choice, sequence.slot, self._directory.eos_token_ids, stop_token_ids)

    def _end(self, sequence: _Sequence) -> None:
        if self._sequences.get(sequence.slot) is sequence:
            del self._sequences[sequence.slot]

    # Health.

    async def _watch(self) -> None:
        """Check the health of the server periodically while it sends no tokens."""
        while True:
            await asyncio.sleep(_CHECK_S)
            if not self._had_output:
                await self._check_health()
            self._had_output = False

    async def _check_health(self) -> bool:
        """Return whether the server is healthy; else close the transport."""
        reason = ""
        for _ in range(_TRIES):
            try:
                await self._server.get("/health")
                return True
            except WorkerLost as error:
                reason = error.message
            except TokenwireError as error:
                reason = f"the server is unhealthy: {error.message}"
                break
        self._frames.close(reason)
        return False

    async def _closing(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a task that all sequences depend on, and close the transport if it fails."""
        try:
            await work
        except Exception as error:
            log.exception("the session with %s failed", self._address)
            self._frames.close(f"the session failed: {error}")

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
