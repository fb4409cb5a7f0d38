"""Prepared requests are run to their responses, and aborted when their client disconnects."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from starlette.requests import ClientDisconnect, Request
from starlette.types import Message

from tests.coordinator.api.openai.chunks import chat_chunks, prepared_digits
from tokenwire.coordinator.api.respond import EventStream, collect, while_connected
from tokenwire.coordinator.generation.context import CONTEXT, RequestContext
from tokenwire.coordinator.generation.service import PreparedRequest
from tokenwire.coordinator.output.choice import Reply
from tokenwire.coordinator.types import Finish, Prefill, TokenPrompt
from tokenwire.errors import WorkerLost

STOP = Finish("stop")


class RecordedConnection:
    """A client that reads everything at once, or has disconnected."""

    share = ""

    def __init__(self, lost: bool = False) -> None:
        self.lost = lost
        self.was_cut = self.congested = False
        self.data = b""
        self.released = False
        self._on_lost: Callable[[], None] = lambda: None

    def watch(self, on_lost: Callable[[], None], on_drained: Callable[[], None]) -> None:
        """Report a disconnect, at once if it has happened."""
        self._on_lost = on_lost
        if self.lost:
            on_lost()

    def disconnect(self) -> None:
        """Disconnect."""
        self.lost = True
        self._on_lost()

    def write(self, data: bytes) -> None:
        """Record."""
        self.data += data

    def hold(self, size_bytes: int) -> None:
        """Do nothing."""

    def cut(self) -> None:
        """Do nothing."""

    async def flush(self) -> None:
        """Do nothing: everything is read."""

    def release(self) -> None:
        """Record."""
        self.released = True


class RecordedHandle:
    """Counts aborts, and records what is settled."""

    def __init__(self) -> None:
        self.aborts = 0
        self.settled: list[int] = []

    def abort(self) -> None:
        """Count."""
        self.aborts += 1

    def settle(self, tokens: int) -> None:
        """Record."""
        self.settled.append(tokens)

    def explain(self) -> str:
        """Return nothing."""
        return ""


class ScriptedGeneration:
    """Generates what a script does with the reply."""

    def __init__(self, script: Callable[[Any], None]) -> None:
        self._script = script
        self.handle = RecordedHandle()

    async def start(self, prepared: PreparedRequest, reply: Reply, context: RequestContext) -> RecordedHandle:
        """Run the script."""
        context.record.prompt_tokens = prepared.prompt_tokens
        self._script(reply)
        return self.handle


def generate_two_choices(reply: Any) -> None:
    """Generate three tokens in two choices of one prompt."""
    for index, ids in enumerate(([7, 8], [9])):
        reply.prefilled(index, Prefill(1))
        reply.first_tokens()
        reply.delta(index, "x", ids, STOP)


async def collected(generation: ScriptedGeneration, context: RequestContext) -> Any:
    """Collect a request of two choices."""
    request = Request({"type": "http", CONTEXT: context})
    return await collect(generation, prepared_digits(TokenPrompt([1, 2]), n=2), request)  # type: ignore[arg-type]


async def streamed_messages(generation: ScriptedGeneration, connection: RecordedConnection) -> list[Message]:
    """Stream a request of two choices; return what is sent through ASGI."""
    sent: list[Message] = []

    async def receive() -> Message:
        raise AssertionError("nothing is received")

    async def send(message: Message) -> None:
        sent.append(message)

    stream = EventStream(generation, prepared_digits(TokenPrompt([1, 2]), n=2), chat_chunks())  # type: ignore[arg-type]
    await stream({"type": "http", CONTEXT: RequestContext(connection)}, receive, send)
    return sent


async def test_a_collected_reply_completes_its_record() -> None:
    """Counts of tokens, times and finishes; the caller is charged for all tokens, and nothing runs on."""
    connection = RecordedConnection()
    context = RequestContext(connection)
    generation = ScriptedGeneration(generate_two_choices)

    first, second = await collected(generation, context)

    record = context.record
    assert (first.token_ids, second.token_ids) == ([7, 8], [9])
    assert (record.completion_tokens, record.cached_tokens) == (3, 1)
    assert record.finishes == [STOP, STOP]
    assert record.first_token_at is not None
    assert (generation.handle.settled, generation.handle.aborts) == ([2 + 3], 1)
    assert connection.released


async def test_a_failed_reply_is_raised_and_recorded() -> None:
    """Tokens until then count."""
    context = RequestContext(RecordedConnection())

    def fail(reply: Any) -> None:
        reply.delta(0, "x", [7], None)
        reply.fail(WorkerLost("gone"))

    generation = ScriptedGeneration(fail)
    with pytest.raises(WorkerLost, match="gone"):
        await collected(generation, context)

    assert context.record.completion_tokens == 1
    assert isinstance(context.record.error, WorkerLost)
    assert generation.handle.settled == [2 + 1]


async def test_a_stream_starts_with_its_first_token() -> None:
    """Then come all events, and the end."""
    connection = RecordedConnection()
    start, end = await streamed_messages(ScriptedGeneration(generate_two_choices), connection)

    assert (start["type"], start["status"]) == ("http.response.start", 200)
    assert dict(start["headers"])[b"content-type"].startswith(b"text/event-stream")
    assert connection.data.count(b'"finish_reason":"stop"') == 2
    assert connection.data.endswith(b"data: [DONE]\n\n")
    assert end == {"type": "http.response.body", "body": b"", "more_body": False}


async def test_an_error_before_the_first_token_starts_no_stream() -> None:
    """It is raised, so that its status reaches the client."""
    generation = ScriptedGeneration(lambda reply: reply.fail(WorkerLost("gone")))

    with pytest.raises(WorkerLost, match="gone"):
        await streamed_messages(generation, RecordedConnection())

    assert generation.handle.aborts == 1
    assert generation.handle.settled == [2]


async def test_a_disconnected_client_is_recorded() -> None:
    """Its request is aborted, and there is no response."""
    context, generation = RequestContext(RecordedConnection(lost=True)), ScriptedGeneration(lambda reply: None)

    with pytest.raises(ClientDisconnect):
        await collected(generation, context)

    assert context.record.client == "client_disconnected"
    assert generation.handle.aborts == 1
    assert generation.handle.settled == [2]


async def test_work_for_a_client_that_has_left_ends() -> None:
    """What it waits for may never come."""
    waited = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            waited.set()

    connection = RecordedConnection()
    waiting = asyncio.create_task(while_connected(connection, work()))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    connection.disconnect()

    with pytest.raises(ClientDisconnect):
        await waiting
    assert waited.is_set()
    assert connection.released


async def test_work_for_a_client_that_waits_is_returned() -> None:
    """Or what it raises."""

    async def work(fails: bool) -> int:
        if fails:
            raise WorkerLost("lost")
        return 7

    assert await while_connected(RecordedConnection(), work(False)) == 7
    assert await while_connected(None, work(False)) == 7
    with pytest.raises(WorkerLost):
        await while_connected(RecordedConnection(), work(True))
