"""Reads the session of a request from its path, /sessions/{id}/v1/..., or from a suffix of its key, before all else."""

import re

from starlette.types import ASGIApp, Receive, Scope, Send

from tokenwire.coordinator.api.api_request import PLACE_OF_SESSION

KEY_MARK = b":session:"
"""Stands between a key and the id of a session: `KEY:session:ID`."""

_PATH = re.compile(r"/sessions/([^/]+)(/(?:v1|inference)(?:/.*)?|/(?:generate|chat)/?|/(?:de)?tokenize)")
_NAME = PLACE_OF_SESSION.encode()
_KEYS = (b"authorization", b"x-api-key")


class SessionPaths:
    """Surrounds the whole application: what it adds to a request's headers no client can send."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(_named(scope) if scope["type"] == "http" else scope, receive, send)


def _named(scope: Scope) -> Scope:
    """Return a request with its session in a header of ours, and its path and key without it."""
    found, (session_id, headers) = _PATH.fullmatch(scope["path"]), _without_suffix(scope["headers"])
    if found is not None:
        session_id, path = found[1].encode(), found[2]
        scope = {**scope, "path": path, "raw_path": path.encode()}
    return {**scope, "headers": [(_NAME, session_id), *headers]} if session_id else scope


def _without_suffix(headers: list[tuple[bytes, bytes]]) -> tuple[bytes, list[tuple[bytes, bytes]]]:
    """Return the session that a key names, if it does, and the headers with the key alone."""
    session_id, kept = b"", []
    for name, value in headers:
        if name in _KEYS and KEY_MARK in value:
            value, _, session_id = value.partition(KEY_MARK)
        kept.append((name, value))
    return session_id, kept
