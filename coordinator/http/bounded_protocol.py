"""Limits on the size and duration of requests as they are received."""

import asyncio
import json
import logging
from dataclasses import dataclass
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from tokenwire.coordinator.http.backpressure import SMALL_BYTES
from tokenwire.coordinator.http.receiving import ReceivingMemory
from tokenwire.errors import error_body, mib
from tokenwire.options import Bounds, Option, Section, Unit, check_bounds, option

log = logging.getLogger(__name__)

MAX_HEADERS = 256
MAX_PIPELINED = 64
"""Requests of a connection that wait for the reply before them: all that come in one read are parsed at once."""

MANY_PIECES = 16_384
"""Pieces of a body, however small: each takes a call. A body with more has to have larger ones."""
_LEAST_PIECE_BYTES = 64
_REQUEST_BYTES, _HEADER_BYTES = 12 * 1024, 300
"""What a request and a header take besides their text."""

_TYPES = {
    400: "BadRequestError",
    408: "RequestTimeoutError",
    431: "RequestHeaderFieldsTooLargeError",
    503: "ServiceUnavailableError",
}


@dataclass(frozen=True, slots=True)
class ProtocolLimits:
    """Limits on received requests."""

    head_bytes: int = option(
        64 * 2**10,
        Option(
            "--max-head-kb",
            "Maximum size of a request line with headers.",
            Section.HTTP,
            unit=Unit.KiB,
            bounds=Bounds(at_least=1),
        ),
    )
    head_timeout_s: float = option(
        30.0,
        Option(
            "--head-timeout",
            "Seconds within which the headers of a request must arrive.",
            Section.HTTP,
            bounds=Bounds(above=0),
        ),
    )
    """From the connection, or the first byte of a further request, to the end of its headers."""
    body_timeout_s: float = 60.0
    """Base timeout for a body."""
    body_bytes_per_s: float = 4096.0
    """Minimum average rate of a body: each byte extends its timeout accordingly."""

    def __post_init__(self) -> None:
        check_bounds(self)


class BoundedProtocol(HttpToolsProtocol):
    """uvicorn's protocol with limits: its parser accepts headers of any size and duration."""

    read_limits = ProtocolLimits()
    extensions: dict[str, Any] | None = None
    """ASGI extensions in the scope of each request."""

    _rejection = 400, ""
    _head_bytes = 0
    _undelivered = 0
    """Bytes since the parser's last callback: it buffers an incomplete header of any length."""
    _delivered = False
    _deadline: asyncio.TimerHandle | None = None
    _body_bytes = 0
    _body_pieces = 0
    _body_since = 0.0
    memory = ReceivingMemory()
    """Of all connections together."""
    _receives = False
    """Whether a request is not complete."""
    _no_scope: Any = {}  # noqa: RUF012
    _waiting_bytes = 0
    """Of pipelined requests."""
    _holds = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the timeout for the first request."""
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop all timeouts."""
        self._stop_waiting()
        self._receives, self._waiting_bytes = False, 0
        self._hold()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse, and limit what the parser buffers."""
        self._delivered = False
        self._unset_keepalive_if_required()
        try:
            self._parse(data)
        except httptools.HttpParserError:
            self.send_400_response("Invalid HTTP request received.")
        self._undelivered = 0 if self._delivered else self._undelivered + len(data)
        if self._undelivered and self.transport.is_closing():
            return
        if self._undelivered > self.read_limits.head_bytes:
            self._reject(431, self._head_too_large())
        elif self._undelivered and self._deadline is None:
            self._await_head()
        self._hold()

    def on_message_begin(self) -> None:
        """Reset the counts of bytes."""
        super().on_message_begin()
        self._head_bytes = self._body_bytes = self._body_pieces = 0
        self._receives = True
        if self.extensions is not None:
            self.scope["extensions"] = self.extensions

    def on_url(self, url: bytes) -> None:
        """Count the request line."""
        super().on_url(url)
        self._head_bytes += len(url)
        if self._head_bytes > self.read_limits.head_bytes:
            self._fail_head()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Count a header."""
        super().on_header(name, value)
        self._head_bytes += len(name) + len(value)
        if self._head_bytes > self.read_limits.head_bytes or len(self.headers) > MAX_HEADERS:
            self._fail_head()

    def on_headers_complete(self) -> None:
        """Start the timeout for the body."""
        if self._parser_skips_body():
            return
        if len(self.pipeline) >= MAX_PIPELINED:
            self._fail(f"More than {MAX_PIPELINED} requests wait for the reply before them.", 400)
        self._delivered = True
        self._stop_waiting()
        super().on_headers_complete()
        self._body_since = self.loop.time()
        self._deadline = self.loop.call_later(self.read_limits.body_timeout_s, self._check_body)

    def on_body(self, body: bytes) -> None:
        """Count a part of the body."""
        self._delivered = True
        self._body_bytes += len(body)
        self._body_pieces += 1
        if self._body_pieces > MANY_PIECES and self._body_bytes < _LEAST_PIECE_BYTES * self._body_pieces:
            self._fail(f"The body came in {self._body_pieces} pieces of less than {_LEAST_PIECE_BYTES} bytes.", 400)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Stop the timeout, because uvicorn handles idle connections, and read on."""
        if self._parser_skips_body():
            return
        self._delivered = True
        self._stop_waiting()
        self._receives = False
        super().on_message_complete()
        if self.pipeline:
            self._waiting_bytes += self._received_bytes()
        else:  # uvicorn reads no more after a large piece; then nobody would notice that the client leaves
            self.flow.resume_reading()

    def on_response_complete(self) -> None:
        """Forget the request, while the connection is idle."""
        if not self.pipeline:
            self._waiting_bytes = 0
            if not self._receives:
                self.headers, self.cycle.scope = [], self._no_scope
                self.scope = self._no_scope
            self._hold()
        super().on_response_complete()

    def give_up(self) -> None:
        """Reject the request that is received: others need the memory."""
        cycle = self.cycle
        waits = cycle is not None and not cycle.response_complete
        if self.pipeline or (waits and (cycle.response_started or cycle.scope is not self.scope)):
            self.transport.abort()  # a reply has begun, or is another request's
        else:
            message = (
                f"This server receives other requests: this one takes {mib(self._received_bytes())} so far, and all "
                f"may take {mib(self.memory.limit_bytes)} together (--max-bodies-mb). Try again."
            )
            self._reject(503, message)

    def send_400_response(self, msg: str) -> None:
        """Respond with an error in the usual shape and with the recorded reason."""
        status, reason = self._rejection
        self._reject(status, reason or msg)

    def _parse(self, data: bytes) -> None:
        """Ignore `Upgrade`, which is not supported, because the parser would skip the body after it."""
        while data:
            try:
                self.parser.feed_data(data)
                return
            except httptools.HttpParserUpgrade as upgrade:
                if not self._parser_skips_body():
                    return
                (body_begins,) = upgrade.args
                data = self._head_without_upgrade() + data[body_begins:]

    def _parser_skips_body(self) -> bool:
        # CONNECT is an upgrade without the header; it has no body, and is rejected like any other unknown method.
        return self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT"

    def _head_without_upgrade(self) -> bytes:
        version = self.parser.get_http_version().encode()
        lines = [b"%b %b HTTP/%b" % (self.parser.get_method(), self.url, version)]
        lines += [b"%b: %b" % header for header in self.headers if header[0] != b"upgrade"]
        return b"\r\n".join([*lines, b"", b""])

    def _fail_head(self) -> None:
        if self._head_bytes > self.read_limits.head_bytes:
            self._fail(self._head_too_large())
        self._fail(f"The request has more than {MAX_HEADERS} headers.")

    def _head_too_large(self) -> str:
        return f"The request's headers are larger than {self.read_limits.head_bytes} bytes (--max-head-kb)."

    def _fail(self, reason: str, status: int = 431) -> None:
        self._rejection = status, reason
        # The parser stops, and uvicorn calls send_400_response.
        raise ValueError(reason)

    def _reject(self, status: int, reason: str) -> None:
        body = json.dumps(error_body(reason, _TYPES[status], status)).encode()
        head = b"content-type: application/json\r\nconnection: close\r\ncontent-length: %d\r\n" % len(body)
        head += b"retry-after: 1\r\n" * (status == 503)
        self.transport.write(STATUS_LINE[status] + head + b"\r\n" + body)
        self.transport.close()
        log.info("rejected request", extra={"fields": {"outcome": "invalid", "status": status, "error": reason}})

    def _received_bytes(self) -> int:
        """Return what the request that is received takes."""
        head = max(self._undelivered, self._head_bytes) + _HEADER_BYTES * len(self.headers)
        return _REQUEST_BYTES + head + min(self._body_bytes, SMALL_BYTES)

    def _hold(self) -> None:
        """Count what the connection takes, unless its request came at once."""
        size = self._waiting_bytes + (self._received_bytes() if self._receives else 0)
        if size or self._holds:
            self._holds = size > 0
            self.memory.hold(self, size)

    def _await_head(self) -> None:
        self._deadline = self.loop.call_later(self.read_limits.head_timeout_s, self._head_overdue)

    def _head_overdue(self) -> None:
        if self._is_replying():
            self._await_head()
        elif self._undelivered:
            within = f"{self.read_limits.head_timeout_s:g} s (--head-timeout)"
            self._reject(408, f"The request's headers were not received within {within}.")
        else:
            self.transport.close()

    def _check_body(self) -> None:
        limits, now = self.read_limits, self.loop.time()
        soon = limits.body_timeout_s / 8
        if self.pipeline:  # a pipelined request is not read until its turn, when its time begins
            self._body_since = now
            self._deadline = self.loop.call_later(soon, self._check_body)
            return
        left = self._body_since + limits.body_timeout_s + self._body_bytes / limits.body_bytes_per_s - now
        if left > 0:
            self._deadline = self.loop.call_later(max(left, soon), self._check_body)
        else:
            self.transport.abort()

    def _is_replying(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
