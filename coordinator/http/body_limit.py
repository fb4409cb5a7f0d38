"""ASGI middleware that refuses bodies over a limit before they fill memory."""

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tokenwire.coordinator.api.errors import error_response
from tokenwire.errors import TooLarge


class BodyLimit:
    """Answers 413 as soon as the declared or the received length is over the limit."""

    def __init__(self, app: ASGIApp, limit_bytes: int) -> None:
        self._app = app
        self._limit = limit_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        declared = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
        if declared.isdigit() and int(declared) > self._limit:
            await self._refuse(scope, receive, send)
            return
        received = 0

        async def limited_receive() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > self._limit:
                # The one exception that FastAPI passes through while it reads a body.
                raise HTTPException(413, self._error().message, {"connection": "close"})
            return message

        await self._app(scope, limited_receive, send)

    async def _refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        response = error_response(self._error(), scope)
        # What the client still sends would be read as its next request.
        response.headers["connection"] = "close"
        await response(scope, receive, send)

    def _error(self) -> TooLarge:
        return TooLarge(f"The request's body is larger than {self._limit} bytes.")
