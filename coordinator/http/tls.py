"""HTTPS for the HTTP listener. Changed certificates are reloaded for new connections."""

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenwire.errors import InvalidRequest
from tokenwire.options import Bounds, Option, Section, check_bounds, option
from tokenwire.peer_auth.certificates import read_authorities, read_certificate
from tokenwire.process.hot_reload import Reloading


@dataclass(frozen=True, slots=True)
class HttpsSettings:
    """Files, with vLLM's names; no certificate: plain HTTP."""

    certfile: Path | None = option(
        None, Option("--ssl-certfile", "Certificate chain for HTTPS.", Section.HTTP, path="file")
    )
    keyfile: Path | None = option(
        None,
        Option(
            "--ssl-keyfile",
            "Private key of --ssl-certfile.",
            Section.HTTP,
            path="file",
            default_text="in the same file",
        ),
    )
    ca_certs: Path | None = option(
        None,
        Option(
            "--ssl-ca-certs",
            "Certificate authorities that client certificates are verified against.",
            Section.HTTP,
            path="file",
        ),
    )
    cert_reqs: int = option(
        0,
        Option(
            "--ssl-cert-reqs",
            "Client certificates: 0 none, 1 optional, 2 required.",
            Section.HTTP,
            bounds=Bounds(at_least=0, at_most=2),
        ),
    )

    def __post_init__(self) -> None:
        check_bounds(self)
        for name in ("keyfile", "ca_certs"):
            if getattr(self, name) is not None and self.certfile is None:
                raise InvalidRequest(f"--ssl-{name.replace('_', '-')} needs --ssl-certfile too")
        if self.cert_reqs and self.ca_certs is None:
            raise InvalidRequest("--ssl-cert-reqs needs --ssl-ca-certs too")
        if self.ca_certs is not None and not self.cert_reqs:
            raise InvalidRequest("--ssl-ca-certs has no effect without --ssl-cert-reqs 1 or 2")

    @property
    def scheme(self) -> str:
        """What URLs begin with."""
        return "http" if self.certfile is None else "https"


def https_context(settings: HttpsSettings) -> ssl.SSLContext | None:
    """Return a context that reloads the files when they change; None for plain HTTP. Raises InvalidRequest."""
    cert, ca = settings.certfile, settings.ca_certs
    if cert is None:
        return None
    key = settings.keyfile or cert

    def read() -> ssl.SSLContext:
        read_certificate(cert, key, ("--ssl-certfile", "--ssl-keyfile"), "server")
        if ca is not None:
            read_authorities(ca, "--ssl-ca-certs")
        return _make_context(cert, key, ca, settings.cert_reqs)

    files = [cert, key] if ca is None else [cert, key, ca]
    contexts = Reloading(files, read)
    first = contexts.current()

    def follow(connection: Any, name: str | None, context: ssl.SSLContext) -> None:
        # Called in every handshake, with or without SNI.
        connection.context = contexts.current()

    first.sni_callback = follow
    return first


def _make_context(cert: Path, key: Path, ca: Path | None, cert_reqs: int) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key, password="")
    context.set_alpn_protocols(["http/1.1"])
    context.verify_mode = ssl.VerifyMode(cert_reqs)
    if ca is not None:
        context.load_verify_locations(ca)
        # A resumed session would bypass CAs that have changed since.
        context.num_tickets = 0
        context.options |= ssl.OP_NO_TICKET
    return context
