"""A session is read from the path or the key, and neither routes nor keys see it there."""

from urllib.parse import unquote

import pytest
from starlette.types import Message, Scope

from tokenwire.coordinator.api.api_request import PLACE_OF_SESSION
from tokenwire.coordinator.api.trajectories.session_paths import SessionPaths, decoded, path_of
from tokenwire.protocol.weight_limits import WeightLimits

Headers = list[tuple[bytes, bytes]]


async def seen(path: str, *headers: tuple[bytes, bytes]) -> tuple[str, Headers]:
    """Return the path and the headers that the application gets."""
    scopes: list[Scope] = []

    async def app(scope: Scope, receive: object, send: object) -> None:
        scopes.append(scope)

    async def receive() -> Message:
        raise AssertionError("nothing is received")

    async def send(message: Message) -> None:
        raise AssertionError("nothing is sent")

    scope = {"type": "http", "path": unquote(path), "raw_path": path.encode(), "headers": [*headers]}
    await SessionPaths(app)(scope, receive, send)
    return scopes[0]["path"], scopes[0]["headers"]


def session(name: str) -> tuple[bytes, bytes]:
    """Return the header that names a session."""
    return PLACE_OF_SESSION.encode(), name.encode()


@pytest.mark.parametrize(
    "path",
    [
        "/v1/chat/completions",
        "/v1/messages",
        "/v1/models",
        "/inference/v1/generate",
        "/generate",
        "/chat/",
        "/tokenize",
    ],
)
async def test_a_path_names_a_session(path: str) -> None:
    """In front of every route that generates, and of what goes with it."""
    assert await seen(f"/sessions/räumlich 1{path}") == (path, [session("räumlich 1")])


@pytest.mark.parametrize(
    "path", ["/sessions/a", "/sessions/a/trajectory", "/sessions/a/traces", "/v1/models", "/sessions/a/b/v1/models"]
)
async def test_other_paths_stay_as_they_are(path: str) -> None:
    """Those of sessions themselves too."""
    assert await seen(path, (b"x-session-id", b"b")) == (path, [(b"x-session-id", b"b")])


@pytest.mark.parametrize("name", [b"authorization", b"x-api-key"])
async def test_a_key_names_a_session(name: bytes) -> None:
    """Only the key is left; the path's session takes precedence."""
    given = (name, b"Bearer sesame:session:run-1")

    assert await seen("/v1/messages", given) == ("/v1/messages", [session("run-1"), (name, b"Bearer sesame")])
    assert await seen("/sessions/a/v1/messages", given) == ("/v1/messages", [session("a"), (name, b"Bearer sesame")])


async def test_limits_of_weights_follow_the_name_of_a_session() -> None:
    """In the path and in the key; the client's own headers go before them."""
    lag, version = (b"x-max-weight-lag", b"2"), (b"x-min-weight-version", b"step 1")
    own = (b"x-max-weight-lag", b"0")
    path = path_of("a", WeightLimits("step 1", 2))

    assert path == "/sessions/a;max_weight_lag=2;min_weight_version=step%201/v1"
    assert await seen(path, own) == ("/v1", [session("a"), own, version, lag])
    key = (b"x-api-key", b"sesame:session:b;max_weight_lag=2")
    assert await seen("/v1/messages", key) == ("/v1/messages", [session("b"), (b"x-api-key", b"sesame"), lag])
    assert await seen("/sessions/a;other=1/v1") == ("/v1", [session("a;other=1")])
    assert path_of("a", WeightLimits()) == "/sessions/a/v1"


async def test_an_id_with_slashes_is_one_part_of_a_path() -> None:
    """Escaped, as in any URL; so is what else would end it there."""
    named = path_of("a/b%2F?#", WeightLimits())

    assert named == "/sessions/a%2Fb%252F%3F%23/v1"
    assert await seen(f"{named}/messages") == ("/v1/messages", [session("a/b%2F?#")])
    for path in ("/sessions/a%2Fb%252F/trajectory", "/traces/a%2Fb%252F"):
        assert (await seen(path))[0] == path
        assert decoded(path.split("/")[2]) == "a/b%2F"
    assert (await seen("/sessions/a%20b/nodes/c%2Fd"))[0] == "/sessions/a b/nodes/c/d"
