"""Peer authentication end to end: a coordinator's pool and a worker's server over real sockets."""

import asyncio
import logging
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.certificates import CLIENT, SERVER, Authority
from tests.tokenwire.peer_auth.site import Site, call, coordinating, guarded_worker, problem, refused_status, works
from tests.workers import until
from tokenwire.coordinator.fleet.session_listener import SessionState
from tokenwire.peer_auth.settings import SERVER_NAME, PeerAuthClientSettings
from tokenwire.v1 import control_pb2, inference_pb2

METHODS = [
    f"/{service.full_name}/{method.name}"
    for proto in (inference_pb2, control_pb2)
    for service in proto.DESCRIPTOR.services_by_name.values()
    for method in service.methods
]


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """Certificates and tokens."""
    return Site(tmp_path)


# Accepted connections.


async def test_both_sides_connect_with_certificates_of_one_authority(site: Site) -> None:
    """The worker has a server's certificate, the coordinator a client's."""
    async with guarded_worker(site.worker) as worker:
        await works(worker.address, site.coordinator)


async def test_a_token_is_enough(site: Site) -> None:
    """Without TLS, as on a private network."""
    async with guarded_worker(site.token) as worker:
        await works(worker.address, site.token)


async def test_a_token_over_tls_needs_no_client_certificate(site: Site) -> None:
    """The worker has a certificate, the coordinator a token."""
    async with guarded_worker(replace(site.worker, ca=None, token_file=site.tokens)) as worker:
        await works(worker.address, PeerAuthClientSettings(ca=site.ca, token_file=site.tokens))


async def test_the_documented_commands_create_working_certificates(tmp_path: Path) -> None:
    """The commands of docs/guides/tls.md, unchanged."""
    document = (Path(__file__).parents[3] / "docs/guides/tls.md").read_text()
    commands = document.partition("## Make certificates")[2].partition("```sh\n")[2].partition("```")[0]
    running = await asyncio.create_subprocess_exec(
        "bash", "-ec", commands, cwd=tmp_path, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
    )
    assert await running.wait() == 0

    def peer_auth(name: str) -> PeerAuthClientSettings:
        return PeerAuthClientSettings(tmp_path / f"{name}.crt", tmp_path / f"{name}.key", tmp_path / "ca.crt")

    async with guarded_worker(peer_auth("worker")) as worker:
        await works(worker.address, peer_auth("coordinator"))


# Rejected connections.


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


async def test_no_method_can_be_called_without_a_certificate(
    site: Site, strangers: list[PeerAuthClientSettings]
) -> None:
    """Every method of the protocol: sessions, weights, tokenizers."""
    async with guarded_worker(site.worker) as worker:
        for stranger in strangers:
            for method in METHODS:
                assert await call(worker.address, method, stranger) is grpc.StatusCode.UNAVAILABLE
        assert worker.server_info().sessions == 0


async def test_no_method_can_be_called_without_the_token(site: Site) -> None:
    """Every method of the protocol, without a token and with a wrong one."""
    async with guarded_worker(site.token) as worker:
        for stranger in (PeerAuthClientSettings(), PeerAuthClientSettings(token="wrong")):
            for method in METHODS:
                assert await call(worker.address, method, stranger) is grpc.StatusCode.UNAUTHENTICATED
        assert worker.server_info().sessions == 0


async def test_a_certificate_does_not_replace_the_token(site: Site) -> None:
    """A worker may require both."""
    async with guarded_worker(replace(site.worker, token_file=site.tokens)) as worker:
        assert await call(worker.address, METHODS[0], site.coordinator) is grpc.StatusCode.UNAUTHENTICATED
        await works(worker.address, replace(site.coordinator, token_file=site.tokens))


async def test_a_worker_cannot_pose_as_a_coordinator(site: Site) -> None:
    """Its certificate is a server's; the other workers reject it."""
    assert site.worker.cert is not None
    assert site.worker.key is not None
    credentials = grpc.ssl_channel_credentials(
        site.authority.pem, site.worker.key.read_bytes(), site.worker.cert.read_bytes()
    )
    options = [("grpc.ssl_target_name_override", SERVER_NAME)]
    async with (
        guarded_worker(site.worker) as worker,
        grpc.aio.secure_channel(worker.address, credentials, options) as channel,
    ):
        assert await refused_status(channel, METHODS[0]) is grpc.StatusCode.UNAVAILABLE


# Messages.


async def test_coordinators_report_errors_of_certificates(site: Site, strangers: list[PeerAuthClientSettings]) -> None:
    """Each message names the remedy."""
    plain, no_certificate, stranger, _ = strangers
    other_ca = Authority("other").write(site.folder / "other.crt")
    namesake_ca = Authority().write(site.folder / "namesake.crt")
    async with guarded_worker(site.worker) as worker:
        messages = [
            await problem(worker.address, peer_auth)
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
    async with guarded_worker(PeerAuthClientSettings()) as worker:
        assert "does not use TLS: start it with --peer-cert" in await problem(worker.address, site.coordinator)


async def test_both_sides_report_a_wrong_token(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    """The worker logs it once for each host; neither side logs a token."""
    with caplog.at_level(logging.INFO):
        async with guarded_worker(site.token) as worker:
            assert "rejects our token: --peer-token-file" in await problem(
                worker.address, PeerAuthClientSettings(token="wrong")
            )
            assert "requires a token: --peer-token-file" in await problem(worker.address, PeerAuthClientSettings())
            warnings = [record.message for record in caplog.records if "rejecting calls" in record.message]
    assert len(warnings) == 1
    assert "--peer-token-file" in warnings[0]
    assert "wrong" not in caplog.text


# Health.


async def health(channel: grpc.aio.Channel) -> int:
    """Return the health status."""
    answer = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=5)
    return int(answer.status)


async def test_health_needs_no_token(site: Site) -> None:
    """Probes have none."""
    async with guarded_worker(site.token) as worker, grpc.aio.insecure_channel(worker.address) as channel:
        assert await health(channel) == health_pb2.HealthCheckResponse.SERVING


async def test_the_health_port_serves_only_health(site: Site) -> None:
    """If certificates are required, probes have a port without them."""
    async with guarded_worker(site.worker, health_listen="127.0.0.1:0") as worker:
        assert worker.health_address is not None
        async with grpc.aio.insecure_channel(worker.health_address) as channel:
            assert await health(channel) == health_pb2.HealthCheckResponse.SERVING
        for method in METHODS:
            status = await call(worker.health_address, method, PeerAuthClientSettings())
            assert status is grpc.StatusCode.UNIMPLEMENTED


# Rotation.


async def test_tokens_are_rotated_without_an_interruption(site: Site) -> None:
    """Workers accept both, then coordinators send the new one, then workers drop the old one."""
    (mine := site.folder / "mine").write_text("right\n")
    coordinator = PeerAuthClientSettings(token_file=mine)
    async with guarded_worker(site.token) as worker:
        site.tokens.write_text("right\nnext\n")
        await works(worker.address, coordinator)
        mine.write_text("next\nright\n")
        await works(worker.address, coordinator)
        site.tokens.write_text("next\n")
        await works(worker.address, coordinator)
        assert (
            await call(worker.address, METHODS[0], PeerAuthClientSettings(token="right"))
            is grpc.StatusCode.UNAUTHENTICATED
        )


async def test_certificates_and_authorities_are_rotated_without_an_interruption(site: Site) -> None:
    """Both authorities are trusted for a while, then the old certificates are rejected. Open sessions continue."""
    (site.folder / "next").mkdir()
    following = Authority("next")
    old_ca = site.authority.write(site.folder / "former-ca.crt")
    old = site.authority.issue(site.folder, "old", usage=CLIENT)
    async with guarded_worker(site.worker) as worker, coordinating(worker.address, site.coordinator) as pool:
        session = pool.sessions[0]
        await until(lambda: session.state is SessionState.READY)
        site.ca.write_bytes(site.authority.pem + following.pem)
        for name, usage in (("worker", SERVER), ("coordinator", CLIENT)):
            pair = following.issue(site.folder / "next", name, usage=usage)
            for file in (pair.cert, pair.key):
                file.rename(site.folder / file.name)
            await works(worker.address, site.coordinator)
        site.ca.write_bytes(following.pem)
        await works(worker.address, site.coordinator)
        refused = PeerAuthClientSettings(old.cert, old.key, old_ca)
        assert await call(worker.address, METHODS[0], refused) is grpc.StatusCode.UNAVAILABLE
        assert session.state is SessionState.READY


async def test_a_broken_file_changes_nothing(site: Site) -> None:
    """A worker whose key file was overwritten keeps its key."""
    assert site.worker.key is not None
    async with guarded_worker(site.worker) as worker:
        site.worker.key.write_text("junk")
        await works(worker.address, site.coordinator)
