"""Whether a plain vLLM server still works, and what the failure of one of its requests means."""

import asyncio
import logging

from tokenwire.coordinator.fleet.transport.vllm_http.http_client import VllmHttpClient
from tokenwire.coordinator.fleet.transport.vllm_http.token_buffer import TokenBuffer
from tokenwire.errors import EngineFailed, TokenwireError, Unavailable, WorkerLost

log = logging.getLogger(__name__)

_CHECK_S = 5.0
_TRIES = 2
"""A server may be busy briefly."""


class ServerHealth:
    """Asks the server for its health, and ends the session with it."""

    def __init__(self, server: VllmHttpClient, address: str, frames: TokenBuffer) -> None:
        self._server = server
        self._address = address
        self._frames = frames
        self.had_output = True
        """Whether tokens arrived since the last check."""

    async def watch(self) -> None:
        """Check the health of the server periodically while it sends no tokens."""
        while True:
            await asyncio.sleep(_CHECK_S)
            if not self.had_output:
                await self.check()
            self.had_output = False

    async def check(self) -> bool:
        """Return whether the server is healthy; else end the session."""
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

    async def failure(self, error: Exception) -> TokenwireError | None:
        """Return what a request fails with; None if the whole server is lost, and with it the session."""
        if isinstance(error, WorkerLost):
            if not await self.check():
                return None
            return Unavailable(f"The worker of this request was lost ({error.message}).", retry_after_s=1)
        if isinstance(error, TokenwireError):
            return error
        log.error("invalid response of %s", self._address, exc_info=error)
        return EngineFailed(f"The server's response is invalid: {error!r}")
