"""Fixtures of peer authentication's tests."""

from pathlib import Path

import pytest

from tests.certificates import Authority, CertificateFiles
from tests.tokenwire.peer_auth.site import Site
from tokenwire.peer_auth.settings import PeerAuthClientSettings


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """Certificates and tokens."""
    return Site(tmp_path)


@pytest.fixture
def pair(tmp_path: Path) -> CertificateFiles:
    """A certificate for both roles."""
    return Authority().issue(tmp_path, "pair")


@pytest.fixture
def strangers(site: Site) -> list[PeerAuthClientSettings]:
    """Settings without a certificate that the worker accepts."""
    other = Authority().issue(site.folder, "stranger")
    return [
        PeerAuthClientSettings(),
        PeerAuthClientSettings(ca=site.ca),
        PeerAuthClientSettings(other.cert, other.key, site.ca),
        PeerAuthClientSettings(ca=site.ca, token="right"),
    ]
