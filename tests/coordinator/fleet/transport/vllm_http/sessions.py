"""Sessions with plain vLLM servers."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from tests.plain_vllm_server import FakeVllmServer
from tests.workers import accept, running_session
from tokenwire.coordinator.fleet.session import WorkerSession
from tokenwire.coordinator.fleet.transport.vllm_http.settings import VllmHttpSettings
from tokenwire.coordinator.fleet.transport.vllm_http.transport import VllmHttpTransport
from tokenwire.coordinator.fleet.transport.vllm_http.unsent_media import UnsentMedia

EOS = 2
"""Of the model's directory."""


@asynccontextmanager
async def vllm_session(server: FakeVllmServer, directory: Path | None) -> AsyncIterator[WorkerSession]:
    """Run a session with a plain vLLM server."""
    opens = partial(VllmHttpTransport, VllmHttpSettings(directory, "secret"), UnsentMedia("secret"))
    session = WorkerSession(server.url, "test", accept, open_transport=opens)
    async with running_session(session):
        yield session
