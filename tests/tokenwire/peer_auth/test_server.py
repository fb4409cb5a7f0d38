"""A worker's port lets in coordinators with a certificate or a token, over real sockets, and nobody else."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import grpc
import pytest

from tests.certificates import CLIENT, SERVER, Authority, CertificateFiles
from tests.tokenwire.peer_auth.site import (
    METHODS,
    Site,
    authenticating_worker,
    call,
    refused_status,
    running_pool,
    works,
)
from tests.worker.peers import connected_peer
from tests.workers import until
from tokenwire.coordinator.fleet.session_listener import SessionState
from tokenwire.errors import InvalidRequest
from tokenwire.peer_auth.client import ChannelFactory
from tokenwire.peer_auth.server import AuthenticatedPort
from tokenwire.peer_auth.settings import SERVER_NAME, PeerAuthClientSettings, PeerAuthSettings
from tokenwire.v1 import inference_pb2 as pb
from tokenwire.v1 import inference_pb2_grpc

# Accepted connections.


async def test_both_sides_connect_with_certificates_of_one_authority(site: Site) -> None:
    """The worker has a server's certificate, the coordinator a client's."""
    async with authenticating_worker(site.worker) as worker:
        await works(worker.address, site.coordinator)


async def test_a_token_is_enough(site: Site) -> None:
    """Without TLS, as on a private network."""
    async with authenticating_worker(site.token) as worker:
        await works(worker.address, site.token)


async def test_calls_of_every_kind_bring_the_token(site: Site) -> None:
    """Also those that put pictures, and those that are answered in parts: this worker takes text only, and says so."""

    async def nothing() -> AsyncIterator[pb.PutRequest]:
        yield pb.PutRequest()

    async with (
        authenticating_worker(site.token) as worker,
        ChannelFactory(site.token).open_channel(worker.address) as channel,
    ):
        stub = inference_pb2_grpc.MediaStub(channel)
        rendering = stub.Render(pb.RenderRequest())
        for calling in (stub.Put(nothing()), stub.Expand(pb.ExpandRequest()), anext(aiter(rendering))):
            with pytest.raises(grpc.aio.AioRpcError, match="takes text only"):
                await calling


async def test_a_token_over_tls_needs_no_client_certificate(site: Site) -> None:
    """The worker has a certificate, the coordinator a token."""
    async with authenticating_worker(replace(site.worker, ca=None, token_file=site.tokens)) as worker:
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

    async with authenticating_worker(peer_auth("worker")) as worker:
        await works(worker.address, peer_auth("coordinator"))


# Rejected connections.


async def test_no_method_can_be_called_without_a_certificate(
    site: Site, strangers: list[PeerAuthClientSettings]
) -> None:
    """Every method of the protocol: sessions, weights, tokenizers."""
    async with authenticating_worker(site.worker) as worker:
        for stranger in strangers:
            for method in METHODS:
                assert await call(worker.address, method, stranger) is grpc.StatusCode.UNAVAILABLE
        assert worker.server_info().sessions == 0


async def test_no_method_can_be_called_without_the_token(site: Site) -> None:
    """Every method of the protocol, without a token and with a wrong one."""
    async with authenticating_worker(site.token) as worker:
        for stranger in (PeerAuthClientSettings(), PeerAuthClientSettings(token="wrong")):
            for method in METHODS:
                assert await call(worker.address, method, stranger) is grpc.StatusCode.UNAUTHENTICATED
        assert worker.server_info().sessions == 0


async def test_a_certificate_does_not_replace_the_token(site: Site) -> None:
    """A worker may require both."""
    async with authenticating_worker(replace(site.worker, token_file=site.tokens)) as worker:
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
        authenticating_worker(site.worker) as worker,
        grpc.aio.secure_channel(worker.address, credentials, options) as channel,
    ):
        assert await refused_status(channel, METHODS[0]) is grpc.StatusCode.UNAVAILABLE


# Health.


async def test_health_needs_no_token(site: Site) -> None:
    """Probes have none."""
    async with authenticating_worker(site.token) as worker, connected_peer(worker.address) as prober:
        assert await prober.health() == "SERVING"


# Rotation.


async def test_certificates_and_authorities_are_rotated_without_an_interruption(site: Site) -> None:
    """Both authorities are trusted for a while, then the old certificates are rejected. Open sessions continue."""
    (site.folder / "next").mkdir()
    following = Authority("next")
    old_ca = site.authority.write(site.folder / "former-ca.crt")
    old = site.authority.issue(site.folder, "old", usage=CLIENT)
    async with authenticating_worker(site.worker) as worker, running_pool(worker.address, site.coordinator) as pool:
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
    async with authenticating_worker(site.worker) as worker:
        site.worker.key.write_text("junk")
        await works(worker.address, site.coordinator)


def test_tls_on_a_worker_requires_authentication(site: Site, pair: CertificateFiles) -> None:
    """Encryption alone does not authenticate coordinators; authorities alone do not encrypt."""
    with pytest.raises(
        InvalidRequest, match=r"--peer-cert alone does not authenticate coordinators.*--peer-ca.*--peer-token-file"
    ):
        AuthenticatedPort(PeerAuthSettings(cert=pair.cert, key=pair.key))
    with pytest.raises(InvalidRequest, match="--peer-ca needs --peer-cert and --peer-key too"):
        AuthenticatedPort(PeerAuthSettings(ca=site.ca))
