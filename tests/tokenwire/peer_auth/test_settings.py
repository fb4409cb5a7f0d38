"""Incomplete settings of peer authentication are rejected, with what is missing."""

from pathlib import Path

import pytest

from tests.certificates import CertificateFiles
from tokenwire.cli.click_options import build
from tokenwire.errors import InvalidRequest
from tokenwire.peer_auth.client import ChannelFactory
from tokenwire.peer_auth.peer_tokens import PeerTokens
from tokenwire.peer_auth.settings import PeerAuthClientSettings, PeerAuthSettings


def test_a_certificate_needs_its_key(pair: CertificateFiles) -> None:
    """A key also needs its certificate."""
    with pytest.raises(InvalidRequest, match="--peer-cert needs --peer-key too"):
        PeerAuthSettings(cert=pair.cert)
    with pytest.raises(InvalidRequest, match="--peer-key needs --peer-cert too"):
        PeerAuthSettings(key=pair.key)


def test_two_sources_of_tokens_are_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be unclear which one applies."""
    monkeypatch.setenv("TOKENWIRE_PEER_TOKEN", "secret")

    with pytest.raises(InvalidRequest, match="keep one of them"):
        build(PeerAuthSettings, {"--peer-token-file": tmp_path})


def test_an_empty_token_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the environment and in a file."""
    monkeypatch.setenv("TOKENWIRE_PEER_TOKEN", " ")
    with pytest.raises(InvalidRequest, match="TOKENWIRE_PEER_TOKEN is empty"):
        build(PeerAuthSettings, {})
    (empty := tmp_path / "empty").write_text("\n")
    with pytest.raises(InvalidRequest, match="holds no token"):
        ChannelFactory(PeerAuthClientSettings(token_file=empty))


def test_tokens_are_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither settings nor tokens have them in their repr."""
    monkeypatch.setenv("TOKENWIRE_PEER_TOKEN", "secret")

    settings = build(PeerAuthSettings, {})

    assert "secret" not in repr(settings)
    assert "secret" not in repr(PeerTokens("secret", "a test"))
