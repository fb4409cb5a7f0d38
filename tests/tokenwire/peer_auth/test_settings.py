"""Incomplete settings of peer authentication are rejected, with what is missing."""

from pathlib import Path

import pytest

from tests.certificates import Authority, Pair
from tokenwire.cli.click_options import build
from tokenwire.errors import InvalidRequest
from tokenwire.peer_auth.client import ChannelFactory
from tokenwire.peer_auth.peer_tokens import PeerTokens
from tokenwire.peer_auth.server import GuardedPort
from tokenwire.peer_auth.settings import PeerAuthClientSettings, PeerAuthSettings


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    """A certificate."""
    return Authority().issue(tmp_path, "pair")


@pytest.fixture
def ca(tmp_path: Path) -> Path:
    """An authority's certificate."""
    return Authority().write(tmp_path / "ca.crt")


def test_a_certificate_needs_its_key(pair: Pair) -> None:
    """A key also needs its certificate."""
    with pytest.raises(InvalidRequest, match="--peer-cert needs --peer-key too"):
        PeerAuthSettings(cert=pair.cert)
    with pytest.raises(InvalidRequest, match="--peer-key needs --peer-cert too"):
        PeerAuthSettings(key=pair.key)


def test_a_coordinator_needs_authorities(pair: Pair) -> None:
    """Its own certificate is not enough."""
    with pytest.raises(InvalidRequest, match="--peer-cert needs --peer-ca too"):
        ChannelFactory(PeerAuthClientSettings(cert=pair.cert, key=pair.key))


def test_tls_on_a_worker_requires_authentication(pair: Pair, ca: Path) -> None:
    """Encryption alone does not authenticate coordinators; authorities alone do not encrypt."""
    with pytest.raises(
        InvalidRequest, match=r"--peer-cert alone does not authenticate coordinators.*--peer-ca.*--peer-token-file"
    ):
        GuardedPort(PeerAuthSettings(cert=pair.cert, key=pair.key))
    with pytest.raises(InvalidRequest, match="--peer-ca needs --peer-cert and --peer-key too"):
        GuardedPort(PeerAuthSettings(ca=ca))


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


@pytest.mark.parametrize("token", ["two words", "tokén", "bell\a"])
def test_a_token_must_fit_in_a_header(token: str) -> None:
    """Otherwise every call would fail with an unhelpful error. The message does not have the token."""
    with pytest.raises(InvalidRequest, match="printable") as refused:
        PeerTokens(token, "a test")
    assert token not in refused.value.message


def test_all_tokens_match_and_the_first_is_sent() -> None:
    """This permits rotation."""
    tokens = PeerTokens("new\nold\n\n", "a test")

    assert tokens.authorization == "Bearer new"
    assert tokens.match("Bearer new")
    assert tokens.match("bearer old")
    assert not any(map(tokens.match, ("", "Bearer", "Bearer ", "Bearer ne", "Basic new", "Bearer nëw")))
