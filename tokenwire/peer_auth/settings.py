"""Settings of authentication between coordinators and workers, for both sides."""

from dataclasses import dataclass
from pathlib import Path

from tokenwire.errors import InvalidRequest
from tokenwire.options import Option, Section, option

SERVER_NAME = "tokenwire-worker"
TOKEN_VARIABLE = "TOKENWIRE_PEER_TOKEN"  # noqa: S105


def _parse_token(token: str) -> str:
    if not token.strip():
        raise InvalidRequest(f"{TOKEN_VARIABLE} is empty")
    return token


@dataclass(frozen=True, slots=True)
class PeerAuthSettings:
    """Certificates and tokens. Without any, workers accept all connections."""

    cert: Path | None = option(
        None,
        Option(
            "--peer-cert",
            "TLS certificate of this side of the connection between coordinators and workers.",
            Section.PEER_AUTH,
            path="file",
        ),
    )
    key: Path | None = option(None, Option("--peer-key", "Private key of --peer-cert.", Section.PEER_AUTH, path="file"))
    ca: Path | None = option(
        None,
        Option(
            "--peer-ca",
            "Certificate authorities that the peer's certificate is verified against.",
            Section.PEER_AUTH,
            path="file",
        ),
    )
    token_file: Path | None = option(
        None,
        Option(
            "--peer-token-file",
            "File with tokens, one per line: coordinators send the first, workers accept all; "
            f"or set {TOKEN_VARIABLE}.",
            Section.PEER_AUTH,
            path="file",
        ),
    )
    token: str | None = option(
        None,
        Option(
            "",
            "Tokens, where there is no --peer-token-file.",
            Section.PEER_AUTH,
            variable=TOKEN_VARIABLE,
            parse=_parse_token,
        ),
    )

    def __post_init__(self) -> None:
        for given, missing in (("cert", "key"), ("key", "cert")):
            if getattr(self, given) is not None and getattr(self, missing) is None:
                raise InvalidRequest(f"--peer-{given} needs --peer-{missing} too")
        if self.token_file is not None and self.token is not None:
            raise InvalidRequest(f"--peer-token-file and {TOKEN_VARIABLE} are both set: keep one of them")


@dataclass(frozen=True, slots=True)
class PeerAuthClientSettings(PeerAuthSettings):
    """The coordinator's side, which also verifies the name of workers."""

    server_name: str = option(
        SERVER_NAME, Option("--peer-server-name", "Name in the certificates of workers.", Section.PEER_AUTH)
    )
    """One name for all workers, because their addresses change."""
