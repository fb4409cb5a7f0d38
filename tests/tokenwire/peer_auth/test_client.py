"""Coordinators report why a worker does not let them in, with the remedy."""

import logging
from dataclasses import replace

import pytest

from tests.certificates import Authority, CertificateFiles
from tests.tokenwire.peer_auth.site import Site, authenticating_worker, connection_error
from tokenwire.errors import InvalidRequest
from tokenwire.peer_auth.client import ChannelFactory
from tokenwire.peer_auth.settings import PeerAuthClientSettings


async def test_coordinators_report_errors_of_certificates(site: Site, strangers: list[PeerAuthClientSettings]) -> None:
    """Each message names the remedy."""
    plain, no_certificate, stranger, _ = strangers
    other_ca = Authority("other").write(site.folder / "other.crt")
    namesake_ca = Authority().write(site.folder / "namesake.crt")
    async with authenticating_worker(site.worker) as worker:
        messages = [
            await connection_error(worker.address, peer_auth)
            for peer_auth in (
                plain,
                no_certificate,
                stranger,
                replace(site.coordinator, ca=other_ca),
                replace(site.coordinator, ca=namesake_ca),
                replace(site.coordinator, server_name="another"),
            )
        ]
    words = [
        "may require TLS",
        "may require a certificate (--peer-cert",
        "may reject our certificate",
        "not from an authority in --peer-ca",
        "not from an authority in --peer-ca",
        "not for the name another (--peer-server-name)",
    ]
    for message, expected in zip(messages, words, strict=True):
        assert expected in message


async def test_coordinators_report_a_worker_without_tls(site: Site) -> None:
    """The worker needs a certificate."""
    async with authenticating_worker(PeerAuthClientSettings()) as worker:
        assert "does not use TLS: start it with --peer-cert" in await connection_error(worker.address, site.coordinator)


async def test_both_sides_report_a_wrong_token(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    """The worker logs it once for each host; neither side logs a token."""
    with caplog.at_level(logging.INFO):
        async with authenticating_worker(site.token) as worker:
            assert "rejects our token: --peer-token-file" in await connection_error(
                worker.address, PeerAuthClientSettings(token="wrong")
            )
            assert "requires a token: --peer-token-file" in await connection_error(
                worker.address, PeerAuthClientSettings()
            )
            warnings = [record.message for record in caplog.records if "rejecting calls" in record.message]
    assert len(warnings) == 1
    assert "--peer-token-file" in warnings[0]
    assert "wrong" not in caplog.text


def test_a_coordinator_needs_authorities(pair: CertificateFiles) -> None:
    """Its own certificate is not enough."""
    with pytest.raises(InvalidRequest, match="--peer-cert needs --peer-ca too"):
        ChannelFactory(PeerAuthClientSettings(cert=pair.cert, key=pair.key))
