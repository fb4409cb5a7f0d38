"""Reads the session of a request from its path, /sessions/{id}/v1/..., or from a suffix of its key, before all else.

An id that an agent has chosen may have slashes, which are %2F in a URL: they stay so until `decoded`.
Limits on the age of weights may follow the id, as parameters of the path: `{id};max_weight_lag=2`. They are the
defaults of all requests that come with them, so coordinators need not share what a session's are.
"""

import re
from urllib.parse import quote, unquote, unquote_to_bytes

from starlette.types import ASGIApp, Receive, Scope, Send

from tokenwire.coordinator.api.api_request import LAG_HEADER, PLACE_OF_SESSION, VERSION_HEADER
from tokenwire.protocol.weight_limits import WeightLimits

KEY_MARK = b":session:"
"""Stands between a key and the id of a session: `KEY:session:ID`."""

_ROOTS = (b"sessions", b"traces")
_PATH = re.compile(r"/sessions/([^/]+)(/(?:v1|inference)(?:/.*)?|/(?:generate|chat)/?|/(?:de)?tokenize)")
_NAME = PLACE_OF_SESSION.encode()
_KEYS = (b"authorization", b"x-api-key")
_LIMIT = re.compile(rb"(.+);(max_weight_lag|min_weight_version)=([^;]*)", re.DOTALL)
_LIMIT_HEADERS = {b"max_weight_lag": LAG_HEADER.encode(), b"min_weight_version": VERSION_HEADER.encode()}

_Headers = list[tuple[bytes, bytes]]


def path_of(session_id: str, limits: WeightLimits) -> str:
    """Return the path below which the requests of a session go that have these limits by default."""
    given = {"max_weight_lag": limits.max_lag, "min_weight_version": limits.min_version}
    named = [f";{name}={quote(str(value), safe='')}" for name, value in given.items() if value is not None]
    return f"/sessions/{quote(session_id, safe=':')}{''.join(named)}/v1"


def decoded(part: str) -> str:
    """Return an id as it is, of the part of a path that is one."""
    return unquote(part)


def split_limits(named: bytes) -> tuple[bytes, _Headers]:
    """Return a session's id without the limits that follow it, and these as headers."""
    headers: _Headers = []
    while (found := _LIMIT.fullmatch(named)) is not None:
        named = found[1]
        headers.append((_LIMIT_HEADERS[found[2]], found[3]))
    return named, headers


class SessionPaths:
    """Surrounds the whole application: what it adds to a request's headers no client can send."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(_named(_with_id_as_one_part(scope)) if scope["type"] == "http" else scope, receive, send)


def _with_id_as_one_part(scope: Scope) -> Scope:
    """Return a request whose path has an id with escapes as one part."""
    root, _, rest = scope["raw_path"][1:].partition(b"/")
    part, slash, rest = rest.partition(b"/")
    if root not in _ROOTS or b"%" not in part:
        return scope
    kept = unquote(part).replace("%", "%25").replace("/", "%2F")
    return {**scope, "path": f"/{root.decode()}/{kept}{slash.decode()}{unquote(rest)}"}


def _named(scope: Scope) -> Scope:
    """Return a request with its session in a header of ours, and its path and key without it."""
    found, (session_id, headers) = _PATH.fullmatch(scope["path"]), _without_suffix(scope["headers"])
    if found is not None:
        session_id, path = unquote_to_bytes(found[1]), found[2]
        scope = {**scope, "path": path, "raw_path": path.encode()}
    if not session_id:
        return scope
    session_id, limits = split_limits(session_id)
    return {**scope, "headers": [(_NAME, session_id), *headers, *limits]}  # the client's own headers go first


def _without_suffix(headers: _Headers) -> tuple[bytes, _Headers]:
    """Return the session that a key names, if it does, and the headers with the key alone."""
    session_id, kept = b"", []
    for name, value in headers:
        if name in _KEYS and KEY_MARK in value:
            value, _, session_id = value.partition(KEY_MARK)
        kept.append((name, value))
    return session_id, kept
