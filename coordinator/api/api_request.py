"""What routes read of a request: its body, without fields that clients must not set or that have no effect; headers.

One file, since a body is read, checked and handed over in one pass.
"""

import asyncio
import json
import logging
import os
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from tokenwire.coordinator.api.body_shape import check_shape
from tokenwire.coordinator.api.call_arguments import check_arguments
from tokenwire.coordinator.api.fields.common import INT64_MAX, RequestFields, checked_identifier
from tokenwire.coordinator.api.fields.weight_limits import checked_lag, checked_version
from tokenwire.coordinator.api.json_body import parse_fast, parse_json_in_turns, parse_slowly
from tokenwire.coordinator.auth.caller import ANYBODY, Caller
from tokenwire.coordinator.generation.context import CONTEXT, RequestContext
from tokenwire.coordinator.generation.limits import check_no_transfer_fields
from tokenwire.coordinator.http.backpressure import SMALL_BYTES, BodyMemory
from tokenwire.coordinator.http.connection import Connection
from tokenwire.coordinator.http.content_coding import decompressed
from tokenwire.errors import InvalidRequest
from tokenwire.protocol.weight_limits import WeightLimits

log = logging.getLogger(__name__)

Body = TypeVar("Body", bound=BaseModel)
Guard = Callable[[Request], Awaitable[None]]
"""Raises an error for requests that may not use a route. Called before their body is read."""

# Fields of vLLM that tokenwire does not serve, with the values that have no effect.
NOT_SERVED: dict[str, tuple[Any, ...]] = {
    "use_beam_search": (None, False),
    "best_of": (None, 1),
}

# Fields without effect on the reply: accepted, as by vLLM and OpenAI; the last one is Codex's.
_HARMLESS = frozenset(
    {
        *("user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key"),
        *("prompt_cache_retention", "client_metadata"),
    }
)
_MOST_NAMED = 100
# vLLM's messages, which clients may match.
_UNSUPPORTED_MESSAGES = {
    "suffix": "suffix is only supported for models with FIM completion rendering",
    "mm_processor_kwargs": "Per-request mm_processor_kwargs are disabled on this route.",
    "media_io_kwargs": "Per-request media_io_kwargs are disabled on this route.",
}

_JSON = b"application/json"
_MAX_RANK = 2**32 - 1
"""The largest uint32."""
_TURNS_OF_OTHERS = 4
_TINY_BYTES = 8 * 1024
"""Bodies that are parsed as they come."""

LAG_HEADER, VERSION_HEADER = "x-max-weight-lag", "x-min-weight-version"

_OWN_HEADER = "X-Session-Id"
PLACE_OF_SESSION = "x-:session"
"""Takes the place of a header for a session that the path or the key names. No client can send such a name."""
LIMIT_OF_SESSION = re.compile(r";([^;=]*)=")
"""A limit that follows the id of a session in a path or a key, which therefore has none."""
_AGENT_HEADERS = ("X-Claude-Code-Session-Id", "Session-Id", "Session_Id", "X-Session-Affinity")
"""Those that Claude Code, Codex, older versions of Codex, and opencode send by themselves."""

SESSION_HEADERS = frozenset(name.lower().encode() for name in (_OWN_HEADER, *_AGENT_HEADERS))
"""The headers that are read here, as they are in an ASGI scope."""


def context_of(scope: Scope) -> RequestContext:
    """Return the context that the middleware made for a request."""
    context: RequestContext = scope[CONTEXT]
    return context


async def give_way() -> None:
    """Let others have some turns: a token takes several, from its frame's arrival to its write."""
    for _ in range(_TURNS_OF_OTHERS):
        await asyncio.sleep(0)


class InvalidBody(Exception):
    """A body that is no JSON, or not of its model."""

    def __init__(self, problems: Sequence[Mapping[str, Any]]) -> None:
        super().__init__(problems)
        self.problems = problems
        """As pydantic describes them: `loc`, `msg`, `input`."""


def is_json(content_type: str) -> bool:
    """Return whether a content type is of JSON."""
    kind, _, subtype = content_type.partition(";")[0].strip().lower().partition("/")
    return kind == "application" and (subtype == "json" or subtype.endswith("+json"))


class ApiRequest(Request):
    """The request class of routes."""

    accepts_transfers = False

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        super().__init__(scope, receive, send)
        self.context: RequestContext = scope[CONTEXT]

    async def body(self) -> bytes:
        """Return the body. Raises what `received` does."""
        if not hasattr(self, "_body"):
            self._body = bytes(await self.received())
        return self._body

    async def received(self) -> bytes | bytearray:
        """Receive the body, once. Raises HTTPException as soon as it exceeds the limit, ClientDisconnect; and if it
        is compressed, what `decompressed` does.
        """
        body: bytes | bytearray = b""
        more, memory = True, self.context.body
        most = memory.budget.max_body_bytes
        while more:
            message = await memory.receive(self._receive)
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            piece = message.get("body", b"")
            if not body:
                body = piece
            else:
                if isinstance(body, bytes):
                    body = bytearray(body)  # grows in place: pieces to be joined would take as much again
                body += piece
            more = message.get("more_body", False)
            if most is not None and len(body) > most:
                error = f"The request's body has more than {most} bytes (--max-body-mb)."
                raise HTTPException(413, error, headers={"connection": "close"})
            if len(body) > SMALL_BYTES:  # the number of connections bounds what smaller ones take
                await memory.add(2 * len(body) - memory.held_bytes)  # twice, since growing may copy it
        decode = self.context.decode
        return body if decode is None or not body else await decompressed(body, decode, memory)

    async def read(self, model: type[Body], required: bool) -> Body:
        """Return the body as its model. Raises InvalidBody, Malformed, RecursionError if it is nested too deeply."""
        content = await self._content()
        if content is None and required:
            raise InvalidBody([{"type": "missing", "loc": ("body",), "msg": "Field required", "input": None}])
        self._body = b""
        try:
            return model.model_validate({} if content is None else content, from_attributes=True)
        except ValidationError as error:
            problems = error.errors(include_url=False)
            raise InvalidBody([{**problem, "loc": ("body", *problem["loc"])} for problem in problems]) from error

    async def _content(self) -> Any:
        """Return the parsed body, the bytes of another type, None without a body."""
        body = await self.received()
        if not body:
            return None
        content_type = self.context.headers.get(b"content-type", b"")
        if content_type != _JSON and not is_json(content_type.decode("latin-1")):
            return bytes(body)
        try:
            return await self._parse(body)
        except json.JSONDecodeError as error:
            where = {"type": "json_invalid", "loc": ("body", error.pos), "msg": "JSON decode error", "input": {}}
            raise InvalidBody([where]) from error
        except ValueError as error:  # not even text, or a number too long
            raise HTTPException(400, "There was an error parsing the body") from error

    async def _parse(self, body: bytes | bytearray) -> Any:
        context = self.context
        if len(body) <= SMALL_BYTES:
            if len(body) > _TINY_BYTES:
                await context.body.begin_turn(len(body))  # thousands at once would be parsed in one turn of the loop
            try:
                content = parse_fast(body)
            except ValueError:
                content = parse_slowly(body)
        else:
            await context.body.add(await check_shape(body, give_way=context.body.budget.give_way))
            await context.body.begin_turn(len(body))  # only now: nobody waits for memory in a turn
            content = await parse_json_in_turns(body, context.body.budget.turn)
            await give_way()
            await check_arguments(content)
        context.record.set_body(content)
        if not self.accepts_transfers:
            check_no_transfer_fields(content)
        return content


class TransferRequest(ApiRequest):
    """The request class of routes that have fields for transfers of KV caches."""

    accepts_transfers = True


def responder(
    handler: Callable[..., Awaitable[Response]],
    reads: type[ApiRequest],
    guards: Sequence[Guard],
    body: type[BaseModel] | None,
    body_required: bool,
) -> ASGIApp:
    """Return the application of one route: its guards, its body as a model if it has one, its handler's response."""

    async def respond(scope: Scope, receive: Receive, send: Send) -> None:
        request = reads(scope, receive, send)
        for guard in guards:
            await guard(request)
        if body is None:
            response = await handler(request)
        elif guards or request.context.deadline is None:  # operations on workers are not left half done
            response = await answer(request, body)
        else:
            async with request.context.in_time():
                response = await answer(request, body)
        await response(scope, receive, send)

    async def answer(request: ApiRequest, body: type[BaseModel]) -> Response:
        content = await request.read(body, body_required)
        body_memory = request.context.body
        if body_memory.held_bytes:  # it is large
            await give_way()
        handled = handler(content, request)
        del content  # the handler decides how long it is kept
        response = await handled
        if body_memory.turns is not None:
            body_memory.end_turn()  # what is left is to send it
        return response

    return respond


class UnsupportedFields:
    """Rejects known fields that are not served, unless their values have no effect."""

    def __init__(self, not_served: Mapping[str, tuple[Any, ...]], harmless: Iterable[str] = ()) -> None:
        """not_served: values without effect, by field. harmless: fields that are ignored silently."""
        self._not_served = not_served
        self._harmless = _HARMLESS.union(harmless)
        self._named: set[str] = set()

    def check_body(self, body: BaseModel) -> None:
        """Check all fields of a request, declared by its model or not. Raises InvalidRequest."""
        extra, given = body.model_extra or {}, body.model_fields_set
        if extra or not given.isdisjoint(self._not_served):
            declared = given - extra.keys()
            self.check({**{name: getattr(body, name) for name in self._not_served if name in declared}, **extra})
            extra.clear()  # whatever it holds would be kept for the life of the request

    def check(self, extra: Mapping[str, Any] | None) -> None:
        """Check fields that the request's model does not declare. Raises InvalidRequest."""
        for name, value in (extra or {}).items():
            if name in self._not_served:
                if value not in self._not_served[name]:
                    raise InvalidRequest(_UNSUPPORTED_MESSAGES.get(name) or f"`{name}` is not supported.", param=name)
            elif name not in self._harmless and name not in self._named and len(self._named) < _MOST_NAMED:
                self._named.add(name)
                log.warning("ignored the unknown request field %s", json.dumps(name[:100]))


def caller_of(request: Request) -> Caller:
    """Return the caller of a request, for routes that read no headers."""
    return context_of(request.scope).caller


class RequestHeaders:
    """The headers that belong to a request, and its caller."""

    def __init__(
        self,
        headers: Mapping[str, str],
        caller: Caller = ANYBODY,
        body: BodyMemory | None = None,
        connection: Connection | None = None,
    ) -> None:
        self.caller = caller
        self.body = body
        """The memory of the request's body, and its turn."""
        self.connection = connection
        """The client's side, where the request came by HTTP."""
        self.weights: WeightLimits | None = None
        """Limits on the age of weights, where the body has none."""
        if LAG_HEADER in headers or VERSION_HEADER in headers:
            lag = headers.get(LAG_HEADER)
            number = int(lag) if lag is not None and lag.isascii() and lag.isdigit() and len(lag) < 20 else lag
            version = checked_version(headers.get(VERSION_HEADER), "X-Min-Weight-Version")
            self.weights = WeightLimits(version, checked_lag(number, "X-Max-Weight-Lag"))
        self._headers = headers
        self._priority = headers.get("x-vllm-priority")
        self._rank = headers.get("x-data-parallel-rank")
        self.request_id = self.identifier("X-Request-Id") if headers else None
        self.conversation_id = self._session() if headers else None
        """The session that the headers name; see `session` for routes whose bodies may name one."""
        self.other_conversation_id: str | None = None
        """The conversation of a request that names none, which is no session to be recorded."""

    @classmethod
    def of(cls, request: Request) -> "RequestHeaders":
        """Read a request's headers and its caller. Raises InvalidRequest."""
        context = context_of(request.scope)
        own = {
            name.decode(): value.decode("latin-1")
            for name, value in context.headers.items()
            if name[:2] == b"x-" or name in SESSION_HEADERS
        }
        return cls(own, context.caller, context.body, context.connection)

    def identifier(self, name: str) -> str | None:
        """Return the identifier in a header. Raises InvalidRequest."""
        value = self._headers.get(name.lower())
        return None if value is None else checked_identifier(value, name)

    def response_id(self, prefix: str, body: str | None) -> str:
        """Return the id of the request: from the X-Request-Id header, from the body, or a new one."""
        return f"{prefix}{self.request_id or body or os.urandom(16).hex()}"

    def priority(self, body: int) -> int:
        """Return the header's priority, or else the body's. As in vLLM, one that is not a number is ignored."""
        return body if self._priority is None else _number(self._priority, body)

    @property
    def data_parallel_rank(self) -> int | None:
        """The data-parallel rank to run on. Raises InvalidRequest if no fleet can have that rank."""
        if self._rank is None:
            return None
        try:
            rank = int(self._rank)
        except ValueError:
            rank = -1
        if not 0 <= rank <= _MAX_RANK:
            shown = f"{self._rank[:100]!r}"
            message = f"X-Data-Parallel-Rank must be a whole number from 0 to {_MAX_RANK}, got {shown}."
            raise InvalidRequest(message, param="X-Data-Parallel-Rank")
        return rank

    def conversation_by(self, name: str) -> str | None:
        """Return the id of the session that this header, or another one, names. Raises InvalidRequest."""
        return self._session(self.identifier(name))

    def session(self, body: RequestFields) -> str | None:
        """Return the id of the session that the body or the headers name; see `_session`. Raises InvalidRequest."""
        extra = None if body.vllm_xargs is None else body.vllm_xargs.get("session_id")
        return self._session(body.session_id, extra, body.prompt_cache_key)

    def conversation(self, body: RequestFields) -> str | None:
        """Return the id of the session, or of what a request continues that names none. Raises InvalidRequest."""
        return self.session(body) or self.other_conversation_id

    def _session(self, body: str | None = None, extra: object = None, cache_key: str | None = None) -> str | None:
        """Return the id of the session: the first one that is named, in the order of `docs/reference/api.md`.

        body: its `session_id`. extra: that of its `vllm_xargs`. cache_key: its `prompt_cache_key`. Raises
        InvalidRequest.
        """
        names_none = not self._headers  # as most requests
        own = None if names_none else self.identifier(_OWN_HEADER)  # checked even where the body takes precedence
        if PLACE_OF_SESSION in self._headers:
            named = self._headers[PLACE_OF_SESSION].encode("latin-1").decode(errors="replace")
            if (unknown := LIMIT_OF_SESSION.search(named)) is not None:
                message = f"{unknown[1][:100]!r} is no limit of a session: max_weight_lag and min_weight_version are."
                raise InvalidRequest(message, param="session_id")
            return checked_identifier(named, "session_id")
        if body or own:
            return body or own
        if isinstance(extra, str) and extra:
            return checked_identifier(extra, "vllm_xargs.session_id")
        agents = () if names_none else filter(None, map(self.identifier, _AGENT_HEADERS))
        return next(iter(agents), cache_key) or None


def _number(text: str, otherwise: int) -> int:
    try:
        value = int(text)
    except ValueError:
        return otherwise
    return value if -INT64_MAX - 1 <= value <= INT64_MAX else otherwise
