"""Tokens with which coordinators authenticate: several at a time, for rotation."""

import hmac
from collections.abc import Callable

from tokenwire.errors import InvalidRequest
from tokenwire.peer_auth.settings import TOKEN_VARIABLE, PeerAuthSettings
from tokenwire.process.hot_reload import Reloading


class PeerTokens:
    """Coordinators send the first, workers accept all. Neither its repr nor its str reveal them."""

    __slots__ = ("_tokens",)

    def __init__(self, text: str, source: str) -> None:
        """Parse tokens, one per line. Raises an InvalidRequest that names the source."""
        self._tokens = [line.strip().encode() for line in text.splitlines() if line.strip()]
        if not self._tokens:
            raise InvalidRequest(f"{source} holds no token")
        if any(not 0x21 <= byte <= 0x7E for token in self._tokens for byte in token):
            raise InvalidRequest(f"{source}: a token must be printable ASCII without spaces")

    @property
    def authorization(self) -> str:
        """The header that a coordinator sends."""
        return f"Bearer {self._tokens[0].decode()}"

    def match(self, authorization: str) -> bool:
        """Return whether a header has one of the tokens, in constant time."""
        scheme, _, token = authorization.partition(" ")
        matches = [hmac.compare_digest(each, token.strip().encode()) for each in self._tokens]
        return scheme.lower() == "bearer" and any(matches)

    def __repr__(self) -> str:
        return "PeerTokens(...)"


def open_tokens(settings: PeerAuthSettings) -> Callable[[], PeerTokens] | None:
    """Return a function for the current tokens; None without any. Raises InvalidRequest."""
    if settings.token is not None:
        fixed = PeerTokens(settings.token, TOKEN_VARIABLE)
        return lambda: fixed
    file = settings.token_file
    if file is None:
        return None

    def read() -> PeerTokens:
        try:
            return PeerTokens(file.read_text(), f"--peer-token-file {file}")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            raise InvalidRequest(f"--peer-token-file: cannot read {file}: {reason}") from error

    return Reloading([file], read).current
