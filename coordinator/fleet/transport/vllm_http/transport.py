"""The transport to a plain vLLM server, whose requests are put in place of a worker's session."""

import asyncio
import logging
import uuid
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from tokenwire.coordinator.fleet.transport.base import Commands
from tokenwire.coordinator.fleet.transport.vllm_http.control_stub import vllm_http_control
from tokenwire.coordinator.fleet.transport.vllm_http.health import ServerHealth
from tokenwire.coordinator.fleet.transport.vllm_http.http_client import VllmHttpClient
from tokenwire.coordinator.fleet.transport.vllm_http.media_info import probe_media
from tokenwire.coordinator.fleet.transport.vllm_http.media_stub import VllmHttpMedia
from tokenwire.coordinator.fleet.transport.vllm_http.model_info import ModelDirectoryConfig
from tokenwire.coordinator.fleet.transport.vllm_http.pooled_batches import PooledBatches
from tokenwire.coordinator.fleet.transport.vllm_http.pooling_info import pooling_from_files, probe_task
from tokenwire.coordinator.fleet.transport.vllm_http.request import ABORT, UNSUPPORTED
from tokenwire.coordinator.fleet.transport.vllm_http.sequences import Sequences
from tokenwire.coordinator.fleet.transport.vllm_http.server_media import ServerMedia
from tokenwire.coordinator.fleet.transport.vllm_http.settings import VllmHttpSettings
from tokenwire.coordinator.fleet.transport.vllm_http.token_buffer import TokenBuffer
from tokenwire.coordinator.fleet.transport.vllm_http.unsent_media import UnsentMedia
from tokenwire.errors import InvalidRequest, TokenwireError, Unavailable, Unsupported
from tokenwire.protocol.version import FIRST_VERSION
from tokenwire.v1 import inference_pb2 as pb
from tokenwire.v1 import inference_pb2_grpc

log = logging.getLogger(__name__)


class VllmHttpTransport:
    """Emulates a worker's session: a welcome first, then frames."""

    sends_steps = False

    def __init__(self, settings: VllmHttpSettings, store: UnsentMedia, address: str, commands: Commands) -> None:
        """`store` is shared by all servers."""
        self._settings = settings
        self._address = address
        self._commands = commands
        self._server = VllmHttpClient(address, settings.key)
        self._frames = TokenBuffer()
        self._health = ServerHealth(self._server, address, self._frames)
        media = ServerMedia(store)
        self._media = VllmHttpMedia(self._server, store, media, self._health)
        self._sequences = Sequences(self._server, address, self._frames, self._health, media, self._spawn)
        self._batches = PooledBatches(self._server, self._frames, self._health, self._spawn)
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_connected = False
        self.control = vllm_http_control(address, self._abort_by_id, self._server.text)

    @property
    def media(self) -> inference_pb2_grpc.MediaStub:
        """The stub for its media."""
        return self._media.as_stub()

    async def read(self) -> pb.SessionResponse | None:
        """Return the welcome, then frames and refusals."""
        if not self._is_connected:
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
            await self._server.post(ABORT, {"request_ids": []})
        except TokenwireError as error:
            await self._describe_pooling(model, self._settings.tokenizer, error)
        else:
            model.media.extend(await probe_media(self._server, model.names[0]))
        self._sequences.model = self._batches.model = self._media.model = model.names[0]
        self._sequences.eos_token_ids = directory.eos_token_ids
        self._is_connected = True
        self._spawn(self._closing(self._handle()))
        self._spawn(self._closing(self._health.watch()))
        welcome = pb.Welcome(
            protocol=FIRST_VERSION,
            instance_id=uuid.uuid4().hex,
            model=model,
            capabilities=pb.EngineCapabilities(unsupported=UNSUPPORTED),
        )
        return pb.SessionResponse(welcome=welcome)

    async def _describe_pooling(self, model: pb.Model, folder: Path, refused: TokenwireError) -> None:
        """Add what the model pools for. Raises Unavailable if it does not; `refused` says why it does not generate."""
        pooled = await probe_task(self._server, model.names[0])
        if pooled is None:
            raise Unavailable(
                f"the server has no token id routes, start it with --enable-scale-out: {refused.message}"
            ) from refused
        model.tasks.append(pooled[0])
        model.pooling.CopyFrom(pooling_from_files(folder, *pooled))

    # Commands.

    async def _handle(self) -> None:
        async for command in self._commands:
            match command.WhichOneof("command"):
                case "submit":
                    await self._sequences.begin(command.submit)
                case "pool":
                    self._batches.begin(command.pool)
                case "abort":
                    self._sequences.abort(command.abort.slots)
                    self._batches.abort(command.abort.slots)

    def _abort_by_id(self, request_ids: frozenset[str] | None) -> int:
        return self._sequences.abort_by_id(request_ids) + self._batches.abort_by_id(request_ids)

    # Tasks.

    async def _closing(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a task that all requests depend on, and close the transport if it fails."""
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
