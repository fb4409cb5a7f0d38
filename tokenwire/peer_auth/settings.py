"""Settings of authentication between coordinators and workers, for both sides."""

from dataclasses import dataclass
from pathlib import Path

from tokenwire.errors import InvalidRequest
from tokenwire.options import Option, Section, option

SERVER_NAME = "tokenwire-worker"
TOKEN_VARIABLE = "TOKENWIRE_LINK_TOKEN"  # noqa: S105


def _parse_token(token: str) -> str:
    if not token.strip():
        raise InvalidRequest(f"{TOKEN_VARIABLE} is empty")
    return token


@dataclass(frozen=True, slots=True)
class LinkSettings:
    """Certificates and tokens. Without any, workers accept all connections."""

    cert: Path | None = option(
        None,
        Option(
            "--link-cert",
            "TLS certificate of this side of the connection between coordinators and workers.",
            Section.LINK,
            path="file",
        ),
    )
    key: Path | None = option(None, Option("--link-key", "Private key of --link-cert.", Section.LINK, path="file"))
    ca: Path | None = option(
        None,
        Option(
            "--link-ca",
            "Certificate authorities that the peer's certificate is verified against.",
            Section.LINK,
            path="file",
        ),
    )
    token_file: Path | None = option(
        None,
        Option(
            "--link-token-file",
            "File with tokens, one per line: coordinators send the first, workers accept all; "
            f"or set {TOKEN_VARIABLE}.",
            Section.LINK,
            path="file",
        ),
    )
    token: str | None = option(
        None,
        Option(
            "",
            "Tokens, where there is no --link-token-file.",
            Section.LINK,
            variable=TOKEN_VARIABLE,
            parse=_parse_token,
        ),
    )

    def __post_init__(self) -> None:
        for given, missing in (("cert", "key"), ("key", "cert")):
            if getattr(self, given) is not None and getattr(self, missing) is None:
                raise InvalidRequest(f"--link-{given} needs --link-{missing} too")
        if self.token_file is not None and self.token is not None:
            raise InvalidRequest(f"--link-token-file and {TOKEN_VARIABLE} are both set: keep one of them")

    @property
    def has_token(self) -> bool:
        """Whether a token is configured."""
        return self.token_file is not None or self.token is not None


@dataclass(frozen=True, slots=True)
class ClientLinkSettings(LinkSettings):
    """The coordinator's side, which also verifies the name of workers."""

    server_name: str = option(
        SERVER_NAME, Option("--link-server-name", "Name in the certificates of workers.", Section.LINK)
    )
    """One name for all workers, because their addresses change."""
