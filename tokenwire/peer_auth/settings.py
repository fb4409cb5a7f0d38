"""What secures the link: options that coordinators and workers share, and their rules."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from tokenwire.cli.options import OptionGroup
from tokenwire.errors import InvalidRequest

SERVER_NAME = "tokenwire-worker"
TOKEN_VARIABLE = "TOKENWIRE_LINK_TOKEN"  # noqa: S105

_FILE = click.Path(dir_okay=False, path_type=Path)
_VALUES: dict[str, dict[str, Any]] = {
    "link_cert": {"type": _FILE, "help": "Certificate for TLS between coordinators and workers."},
    "link_key": {"type": _FILE, "help": "Its key."},
    "link_ca": {"type": _FILE, "help": "Certificates of authorities that the other side's certificate must be from."},
    "link_token_file": {
        "type": _FILE,
        "help": f"File with the token that coordinators bring, one a line: the first is sent, all are taken; "
        f"or set {TOKEN_VARIABLE}.",
    },
}


@dataclass(frozen=True, slots=True)
class LinkSettings:
    """Files that secure the link; none of them: whoever reaches a worker may use it."""

    cert: Path | None = None
    key: Path | None = None
    ca: Path | None = None
    """Authorities of the other side's certificates."""
    token_file: Path | None = None
    token: str | None = field(default=None, repr=False)
    """The token, where there is no file."""
    server_name: str = SERVER_NAME
    """The name that workers' certificates carry: their addresses come and go."""

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


LINK_SECTION = "Link between coordinators and workers"
_GROUP = OptionGroup(LINK_SECTION, _VALUES)
link_options = _GROUP.add


def link_settings(values: dict[str, Any], server_name: str = SERVER_NAME) -> LinkSettings:
    """Take the values of these options out of a command's. Raises InvalidRequest."""
    given = {name.removeprefix("link_"): value for name, value in _GROUP.take(values).items()}
    return LinkSettings(**given, token=_variable(os.environ), server_name=server_name)


def _variable(environment: Mapping[str, str]) -> str | None:
    token = environment.get(TOKEN_VARIABLE)
    if token is not None and not token.strip():
        raise InvalidRequest(f"{TOKEN_VARIABLE} is empty")
    return token
