"""Unusable certificate files are rejected before they are used, by the name of their flag."""

from pathlib import Path

import pytest

from tests.certificates import CLIENT, SERVER, Authority, CertificateFiles
from tokenwire.errors import InvalidRequest
from tokenwire.peer_auth.certificates import Role, read_authorities, read_certificate

FLAGS = ("--cert", "--key")


def reading_error(pair: CertificateFiles, role: Role = "server") -> str:
    """Return the error of reading files."""
    with pytest.raises(InvalidRequest) as refused:
        read_certificate(pair.cert, pair.key, FLAGS, role)
    return refused.value.message


@pytest.mark.parametrize("role", ["server", "client"])
def test_a_certificate_for_both_roles_is_accepted(authority: Authority, tmp_path: Path, role: Role) -> None:
    """The result is the files' PEM; the key is not in its repr."""
    pair = authority.issue(tmp_path, "good")

    found = read_certificate(pair.cert, pair.key, FLAGS, role)

    assert (found.chain, found.key) == (pair.cert.read_bytes(), pair.key.read_bytes())
    assert "PRIVATE" not in repr(found)


def test_a_certificate_is_rejected_in_the_other_role(authority: Authority, tmp_path: Path) -> None:
    """Client certificates are not for servers, nor server certificates for clients."""
    assert "purpose" in reading_error(authority.issue(tmp_path, "client", usage=CLIENT), "server")
    assert "purpose" in reading_error(authority.issue(tmp_path, "server", usage=SERVER), "client")


@pytest.mark.parametrize("role", ["server", "client"])
def test_an_expired_certificate_is_rejected(authority: Authority, tmp_path: Path, role: Role) -> None:
    """In either role."""
    assert "has expired" in reading_error(authority.issue(tmp_path, "old", days=-1), role)


def test_a_key_of_another_certificate_is_rejected(authority: Authority, tmp_path: Path) -> None:
    """Both files are named."""
    one, other = authority.issue(tmp_path, "one"), authority.issue(tmp_path, "other")

    message = reading_error(CertificateFiles(one.cert, other.key))

    assert message == f"--key: {other.key} is not the key of {one.cert} (--cert)"


def test_files_with_other_contents_are_rejected(authority: Authority, tmp_path: Path) -> None:
    """The message names the flag, also of a missing file."""
    good = authority.issue(tmp_path, "good")
    (junk := tmp_path / "junk").write_text("junk")

    assert reading_error(CertificateFiles(junk, good.key)).startswith(f"--cert: {junk} holds no certificate")
    assert reading_error(CertificateFiles(good.cert, junk)).startswith(f"--key: {junk} holds no key")
    assert reading_error(CertificateFiles(good.cert, tmp_path / "none")).startswith("--key: cannot read")


def test_all_authorities_of_a_file_are_read(authority: Authority, tmp_path: Path) -> None:
    """A file may contain several, as during a rotation."""
    (bundle := tmp_path / "bundle.crt").write_bytes(authority.pem + Authority("next").pem)

    assert read_authorities(bundle, "--ca").count(b"BEGIN") == 2


def test_files_without_an_authority_are_rejected(authority: Authority, tmp_path: Path) -> None:
    """Junk, a missing file, and certificates that are not of an authority."""
    (junk := tmp_path / "junk").write_text("junk")
    leaf = authority.issue(tmp_path, "leaf").cert
    for path, words in ((junk, "that can be read"), (leaf, "of an authority"), (tmp_path / "none", "cannot read")):
        with pytest.raises(InvalidRequest, match=f"--ca.*{words}"):
            read_authorities(path, "--ca")
