"""Reads certificates from files, and rejects unusable ones with the reason."""

import ssl
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from tokenwire.errors import InvalidRequest

Role = Literal["server", "client"]

_HANDSHAKE_ROUNDS = 8


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate with its intermediate certificates, and its key, in PEM format."""

    chain: bytes
    key: bytes = field(repr=False)


def read_certificate(cert: Path, key: Path, flags: tuple[str, str], role: Role) -> Certificate:
    """Read a certificate and its key, and check that it is valid now in a role. Raises InvalidRequest."""
    found = Certificate(_read(cert, flags[0]), _read(key, flags[1]))
    _check(cert, key, flags, role)
    return found


def read_authorities(ca: Path, flag: str) -> bytes:
    """Read the certificates of authorities, of which at least one must be valid. Raises InvalidRequest."""
    pem = _read(ca, flag)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(cafile=ca)
    except (ssl.SSLError, OSError) as error:
        raise InvalidRequest(f"{flag}: {ca} holds no certificates that can be read ({_reason(error)})") from error
    authorities = context.get_ca_certs()
    if not authorities:
        raise InvalidRequest(f"{flag}: {ca} holds no certificate of an authority")
    if all(ssl.cert_time_to_seconds(str(each["notAfter"])) < time.time() for each in authorities):
        raise InvalidRequest(f"{flag}: every certificate in {ca} has expired")
    return pem


def _read(path: Path, flag: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidRequest(f"{flag}: cannot read {path}: {error.strerror}") from error


def _check(cert: Path, key: Path, flags: tuple[str, str], role: Role) -> None:
    """Check the certificate by a handshake with itself, whose other side reports what is wrong."""
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_mode = server.verify_mode = ssl.CERT_NONE
    try:
        for context in (server, client):
            # Without a password argument OpenSSL would prompt for one.
            context.load_cert_chain(cert, key, password="")
    except ssl.SSLError as error:
        raise InvalidRequest(_mismatch(cert, key, flags, error)) from error
    verifier = client if role == "server" else server
    verifier.verify_mode = ssl.CERT_REQUIRED
    verifier.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    verifier.load_verify_locations(cafile=cert)
    try:
        _handshake(server, client)
    except ssl.SSLCertVerificationError as error:
        raise InvalidRequest(f"{flags[0]}: {cert} cannot be used: {error.verify_message}") from error


def _handshake(server: ssl.SSLContext, client: ssl.SSLContext) -> None:
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [client.wrap_bio(to_client, to_server), server.wrap_bio(to_server, to_client, server_side=True)]
    for step in range(_HANDSHAKE_ROUNDS):
        try:
            sides[step % 2].do_handshake()
        except ssl.SSLWantReadError:
            continue


def _mismatch(cert: Path, key: Path, flags: tuple[str, str], error: ssl.SSLError) -> str:
    if error.reason == "KEY_VALUES_MISMATCH":
        return f"{flags[1]}: {key} is not the key of {cert} ({flags[0]})"
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cafile=cert)
    except ssl.SSLError as unreadable:
        return f"{flags[0]}: {cert} holds no certificate that can be read ({_reason(unreadable)})"
    return f"{flags[1]}: {key} holds no key that can be read, or one with a password"


def _reason(error: ssl.SSLError | OSError) -> str:
    reason = getattr(error, "reason", None) or error.strerror or "no PEM"
    return str(reason).replace("_", " ").lower()
