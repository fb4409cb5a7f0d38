"""Certificates for tests: an authority in memory, and the files that it writes."""

import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_DAY = datetime.timedelta(days=1)
BOTH = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)
SERVER = (ExtendedKeyUsageOID.SERVER_AUTH,)
CLIENT = (ExtendedKeyUsageOID.CLIENT_AUTH,)
_SIGNS = x509.KeyUsage(False, False, False, False, False, True, False, False, False)  # key_cert_sign alone
"""Python verifies strictly from 3.13 on: it wants an authority's key usage, and what names the key of each."""


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """Files of a certificate and its key."""

    cert: Path
    key: Path


class Authority:
    """Signs certificates."""

    def __init__(self, name: str = "authority") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        subject = _name(name)
        constraints = x509.BasicConstraints(ca=True, path_length=0)
        self._cert = (
            _builder(subject, subject, self._key.public_key(), 365)
            .add_extension(constraints, critical=True)
            .add_extension(_SIGNS, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )

    @property
    def pem(self) -> bytes:
        """The authority's own certificate."""
        return self._cert.public_bytes(serialization.Encoding.PEM)

    def write(self, path: Path) -> Path:
        """Write the authority's own certificate."""
        path.write_bytes(self.pem)
        return path

    def issue(
        self,
        folder: Path,
        name: str,
        names: Sequence[str] = ("tokenwire-worker",),
        usage: Sequence[x509.ObjectIdentifier] = BOTH,
        days: int = 30,
    ) -> CertificateFiles:
        """Write a certificate for DNS names or addresses, with its key; negative days: expired."""
        key = ec.generate_private_key(ec.SECP256R1())
        alternatives = x509.SubjectAlternativeName([_alternative(each) for each in names])
        cert = (
            _builder(_name(name), self._cert.subject, key.public_key(), days)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usage), critical=False)
            .add_extension(alternatives, critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        pair = CertificateFiles(folder / f"{name}.crt", folder / f"{name}.key")
        pair.cert.write_bytes(cert.public_bytes(serialization.Encoding.PEM))
        pair.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return pair


def certify_peers(folder: Path, authority: Authority) -> None:
    """Give coordinators and workers new certificates of an authority, each file in one move."""
    (new := folder / "new").mkdir(exist_ok=True)
    authority.issue(new, "worker", usage=SERVER)
    authority.issue(new, "coordinator", names=["coordinator"], usage=CLIENT)
    authority.write(new / "peer-ca.crt")
    for file in new.iterdir():
        file.rename(folder / file.name)


def peer_options(folder: Path, end: str) -> list[str]:
    """Return the options with which the worker or the coordinator uses them."""
    cert, key, ca = (str(folder / name) for name in (f"{end}.crt", f"{end}.key", "peer-ca.crt"))
    return ["--peer-cert", cert, "--peer-key", key, "--peer-ca", ca]


def _name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - 400 * _DAY)
        .not_valid_after(now + days * _DAY)
    )
