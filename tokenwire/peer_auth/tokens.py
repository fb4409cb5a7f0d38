"""Tokens that coordinators show to workers: several at a time, so that they can be exchanged one by one."""

import hmac
from collections.abc import Callable

from tokenwire.errors import InvalidRequest
from tokenwire.hot_reload import Reloading
from tokenwire.peer_auth.settings import TOKEN_VARIABLE, LinkSettings


class Tokens:
    """The first one is sent, all are taken. Neither its repr nor its str tell them."""

    __slots__ = ("_tokens",)

    def __init__(self, text: str, source: str) -> None:
        """Take tokens, one a line. Raises InvalidRequest, naming the source."""
        self._tokens = [line.strip().encode() for line in text.splitlines() if line.strip()]
        if not self._tokens:
            raise InvalidRequest(f"{source} holds no token")
        if any(not 0x21 <= byte <= 0x7E for token in self._tokens for byte in token):
            raise InvalidRequest(f"{source}: a token is made of printable ASCII characters without blanks")

    @property
    def authorization(self) -> str:
        """What a coordinator sends."""
        return f"Bearer {self._tokens[0].decode()}"

    def match(self, authorization: str) -> bool:
        """Tell whether somebody brings one of the tokens; takes the same time whatever is wrong with it."""
        scheme, _, token = authorization.partition(" ")
        matches = [hmac.compare_digest(each, token.strip().encode()) for each in self._tokens]
        return scheme.lower() == "bearer" and any(matches)

    def __repr__(self) -> str:
        return "Tokens(...)"


def open_tokens(settings: LinkSettings) -> Callable[[], Tokens] | None:
    """Return what gives the tokens as they are now; None where there are none. Raises InvalidRequest."""
    if settings.token is not None:
        fixed = Tokens(settings.token, TOKEN_VARIABLE)
        return lambda: fixed
    file = settings.token_file
    if file is None:
        return None

    def read() -> Tokens:
        try:
            return Tokens(file.read_text(), f"--link-token-file {file}")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not text"
            raise InvalidRequest(f"--link-token-file: cannot read {file}: {reason}") from error

    return Reloading([file], read).current
