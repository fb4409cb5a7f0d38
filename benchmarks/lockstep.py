"""A coordinator in one process without sockets or time: a worker that steps when told, and clients in memory.

The same run takes the same steps on every machine, so that what it counts can be compared between machines.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from benchmarks.load import http_request
from tokenwire.coordinator.app import Core, build_app, build_core
from tokenwire.coordinator.http.lent_connection import lending_protocol
from tokenwire.coordinator.settings import CoordinatorSettings
from tokenwire.peer_auth.client import ChannelFactory, Metadata
from tokenwire.protocol.command_batch import commands_of
from tokenwire.protocol.tokenizer_digest import tokenizer_digest
from tokenwire.protocol.version import protocol_version
from tokenwire.v1 import control_pb2
from tokenwire.v1 import inference_pb2 as pb
from tokenwire.worker.simulated_engine.model import load_model

ADDRESS = "lockstep:1"
MODEL = load_model(None, None)
_WORDS = [word for word in MODEL.words if chr(word).isalpha() or word == ord(" ")]
_WIDTH = 384
"""Of a vector."""
_TURNS = 8
"""Turns of the event loop after which nothing is left to do."""

T = TypeVar("T")


class TimelessLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock stands still: no timer ever ends, and no frame waits for the one before it."""

    def time(self) -> float:
        """Return the same time."""
        return 1000.0


class SteppedWorker(ChannelFactory):
    """Stands for gRPC and a worker behind it: takes what is submitted, and sends a frame at each `step`."""

    def __init__(self) -> None:
        super().__init__()
        self.commands = 0
        """Messages of the coordinator."""
        self._running: dict[int, Any] = {}
        """What each slot was started by."""
        self._fresh: list[int] = []
        self._steps = 0
        self._events: deque[pb.SessionResponse] = deque()
        self._event: asyncio.Future[None] | None = None
        self._awaited = 0
        self._enough: asyncio.Future[None] | None = None

    def open_channel(self, address: str) -> Any:
        """Return this worker itself, with a welcome as its first event."""
        model = self._model()
        model.max_token_id, model.max_num_seqs, model.engine = MODEL.max_token_id, 1024, "stepped"
        model.tokenizer_digest = tokenizer_digest(MODEL.files)
        model.weights_digest, model.dtype, model.quantization = "stepped", "float32", "none"
        welcome = pb.Welcome(protocol=protocol_version(), instance_id="stepped", model=model, heartbeat_ms=10**9)
        welcome.capabilities.sampled_logprobs = True
        self._send(pb.SessionResponse(welcome=welcome))
        return self

    def _model(self) -> pb.Model:
        return pb.Model(names=[MODEL.name], root=MODEL.root, max_model_len=MODEL.max_model_len)

    def metadata(self) -> Metadata | None:
        """Return None."""
        return None

    @property
    def is_idle(self) -> bool:
        """Whether no sequence runs."""
        return not self._running

    def stream_stream(self, *_: Any, **__: Any) -> Callable[..., "SteppedWorker"]:
        """Return the method that opens the session."""

        def open_session(commands: AsyncIterator[pb.SessionRequest], metadata: Metadata | None) -> "SteppedWorker":
            self._taking = asyncio.ensure_future(self._take(commands))
            return self

        return open_session

    def unary_unary(self, *_: Any, **__: Any) -> Callable[..., Any]:
        """Return the method that gets the tokenizer, the only one that is called."""

        async def respond(request: Any) -> control_pb2.GetTokenizerResponse:
            return control_pb2.GetTokenizerResponse(files=MODEL.files)

        return respond

    async def read(self) -> pb.SessionResponse:
        """Return the next event."""
        while not self._events:
            self._event = asyncio.get_running_loop().create_future()
            await self._event
        return self._events.popleft()

    def cancel(self) -> None:
        """End the session."""
        self._taking.cancel()

    async def close(self) -> None:
        """Close the channel."""

    async def _take(self, commands: AsyncIterator[pb.SessionRequest]) -> None:
        async for message in commands:
            self.commands += 1
            for command in commands_of(message):
                self._on_command(command)

    def _on_command(self, command: pb.SessionRequest) -> None:
        kind = command.WhichOneof("command")
        if kind in ("submit", "pool"):
            started = getattr(command, kind)
            self._running.update(dict.fromkeys(started.slots, started))
            self._fresh += started.slots
            if self._enough is not None and len(self._running) == self._awaited:
                self._enough.set_result(None)

    async def wait_for(self, sequences: int) -> None:
        """Wait until so many sequences run."""
        self._awaited, self._enough = sequences, asyncio.get_running_loop().create_future()
        if len(self._running) != sequences:
            await self._enough
        self._enough = None

    def step(self, ends: bool = False) -> None:
        """Send a frame with a token of each sequence, the last one if it ends them."""
        slots = list(self._running)
        frame = pb.StepFrame(slots=slots)
        self._steps += 1
        frame.token_ids.extend(_WORDS[(self._steps + slot) % len(_WORDS)] for slot in slots)
        frame.prefills.extend(pb.PrefillInfo(slot=slot) for slot in self._fresh)
        if any(submit.sampled_logprobs for submit in self._running.values()):
            frame.sampled_logprobs.extend(-0.25 for _ in slots)
        for slot, token_id in zip(slots, frame.token_ids, strict=True):
            if self._running[slot].sampling_params.HasField("logprobs"):
                width = 1 + self._running[slot].sampling_params.logprobs
                token_ids = [token_id, token_id, *(each for each in _WORDS if each != token_id)][:width]
                values = [-0.25, -0.25, *(-1.123456789 * rank for rank in range(2, width))]
                rows = pb.LogprobRows(width=width, token_ids=token_ids, logprobs=values, sampled_ranks=[1])
                frame.logprobs.append(pb.Logprobs(slot=slot, rows=rows))
        if ends:
            frame.finishes.extend(pb.Finish(slot=slot, reason=pb.FINISH_REASON_LENGTH) for slot in slots)
            self._running = {}
        self._fresh = []
        self._send(pb.SessionResponse(frame=frame))

    def _send(self, event: pb.SessionResponse) -> None:
        self._events.append(event)
        if self._event is not None and not self._event.done():
            self._event.set_result(None)


class SteppedPooler(SteppedWorker):
    """A worker that embeds: its step ends all inputs, each with a vector."""

    def _model(self) -> pb.Model:
        model = super()._model()
        model.tasks.append("embed")
        model.pooling.MergeFrom(pb.PoolingModel(task="embed", width=_WIDTH))
        return model

    def step(self, ends: bool = False) -> None:
        """Send a frame with the vectors, as it comes over a wire."""
        pooled = pb.Pooled(shape=[_WIDTH], data=bytes(range(64)) * (_WIDTH // 16))
        finishes = [pb.Finish(slot=slot, reason=pb.FINISH_REASON_STOP, pooled=pooled) for slot in self._running]
        self._running = {}
        self._send(pb.SessionResponse(frame=pb.StepFrame(finishes=finishes)))


class MemoryTransport(asyncio.Transport):
    """The server's end of a connection: keeps the last write, and counts all of them."""

    def __init__(self, on_write: Callable[[], None]) -> None:
        super().__init__()
        self.last = b""
        self._on_write = on_write

    def write(self, data: Any) -> None:
        """Keep it."""
        self.last = bytes(data)
        self._on_write()

    def writelines(self, list_of_data: Any) -> None:
        """Keep all as one, as a system call would write it."""
        self.write(b"".join(list_of_data))

    def is_closing(self) -> bool:
        """Return False."""
        return False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return addresses."""
        return {"peername": ("127.0.0.1", 2), "sockname": ("127.0.0.1", 1)}.get(name, default)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Do nothing."""

    def pause_reading(self) -> None:
        """Do nothing."""

    def resume_reading(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class _Turn:
    """What asyncio.sleep(0) awaits, without its calls."""

    def __await__(self) -> Generator[None, None, None]:
        yield


class Lockstep:
    """A coordinator with its worker, and what clients do."""

    def __init__(self, core: Core, config: uvicorn.Config, worker: SteppedWorker) -> None:
        self.core = core
        self.worker = worker
        self.writes = 0
        """To clients, each of which is a system call."""
        self._config = config
        self._state = ServerState()

    def connect(self) -> HttpToolsProtocol:
        """Return the server's protocol of a new connection."""
        protocol: HttpToolsProtocol = self._config.http_protocol_class(  # type: ignore[call-arg, assignment]
            config=self._config, server_state=self._state, app_state={}
        )
        protocol.connection_made(MemoryTransport(self._on_write))
        return protocol

    async def settle(self) -> None:
        """Let everything happen that does not wait for the worker."""
        for _ in range(_TURNS):
            await _Turn()

    async def step(self, ends: bool = False) -> None:
        """Let the worker compute a token of each sequence, and the coordinator write it."""
        self.worker.step(ends)
        await self.settle()

    def _on_write(self) -> None:
        self.writes += 1


def request_bytes(path: str, body: Mapping[str, Any] | None) -> bytes:
    """Return a request as it is sent; None: without a body, by GET."""
    if body is None:
        return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
    return http_request("http://localhost", path, {"model": MODEL.name, **body})


@asynccontextmanager
async def running(
    settings: CoordinatorSettings | None = None, kind: type[SteppedWorker] = SteppedWorker
) -> AsyncIterator[Lockstep]:
    """Run a coordinator with default settings, its worker of this kind ready."""
    settings = settings or CoordinatorSettings((ADDRESS,))
    worker = kind()
    core = build_core(settings, coordinator_id="lockstep", channels=worker)
    app = build_app(settings, core)
    config = uvicorn.Config(
        app,
        http=lending_protocol(settings.client_stall_timeout_s, settings.protocol_limits),
        ws="none",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
    )
    config.load()
    async with app.router.lifespan_context(app):
        await core.pool.wait_ready()
        yield Lockstep(core, config, worker)


def run_timeless(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on a loop without time."""
    with asyncio.Runner(loop_factory=TimelessLoop) as runner:
        return runner.run(main)
