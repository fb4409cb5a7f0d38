"""Coordinators and workers over real sockets: who gets in, who does not, and what each is told."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.certificates import CLIENT, SERVER, Authority
from tests.workers import until
from tokenwire.coordinator.fleet.control_client import call_worker
from tokenwire.coordinator.fleet.pool import WorkerPool
from tokenwire.coordinator.fleet.session import FetchFiles
from tokenwire.coordinator.fleet.session_listener import SessionState
from tokenwire.peer_auth.client import Link
from tokenwire.peer_auth.settings import SERVER_NAME, LinkSettings
from tokenwire.v1 import control_pb2, inference_pb2
from tokenwire.v1 import inference_pb2 as pb
from tokenwire.worker.server import WorkerServer
from tokenwire.worker.settings import WorkerSettings
from tokenwire.worker.simulated_engine.engine import SimulatedEngine
from tokenwire.worker.simulated_engine.settings import SimulationSettings

METHODS = [
    f"/{service.full_name}/{method.name}"
    for proto in (inference_pb2, control_pb2)
    for service in proto.DESCRIPTOR.services_by_name.values()
    for method in service.methods
]


class Site:
    """Files of a link: an authority, a worker's certificate and a coordinator's."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = Authority()
        self.ca = self.authority.write(folder / "ca.crt")
        worker = self.authority.issue(folder, "worker", usage=SERVER)
        coordinator = self.authority.issue(folder, "coordinator", names=["coordinator"], usage=CLIENT)
        self.tokens = folder / "tokens"
        self.tokens.write_text("right\n")
        self.worker = LinkSettings(worker.cert, worker.key, self.ca)
        self.coordinator = LinkSettings(coordinator.cert, coordinator.key, self.ca)
        self.token = LinkSettings(token_file=self.tokens)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """Files of a link."""
    return Site(tmp_path)


@asynccontextmanager
async def guarded(link: LinkSettings, **settings: str) -> AsyncIterator[WorkerServer]:
    """Run a worker on a port."""
    engine = SimulatedEngine(SimulationSettings(step_ms=1))
    server = WorkerServer(engine, WorkerSettings("127.0.0.1:0", link=link, **settings))  # type: ignore[arg-type]
    await server.startup()
    try:
        yield server
    finally:
        await server.stop()


@asynccontextmanager
async def coordinating(address: str, link: LinkSettings) -> AsyncIterator[WorkerPool]:
    """Run a coordinator's pool."""

    async def fetch(model: pb.Model, files: FetchFiles) -> None:
        await files()

    pool = WorkerPool("test", fetch, link=Link(link))
    pool.update([address])
    try:
        yield pool
    finally:
        await pool.stop()


async def works(address: str, link: LinkSettings) -> None:
    """See that a coordinator opens a session, fetches the tokenizer and makes control calls."""
    async with coordinating(address, link) as pool:
        session = pool.sessions[0]
        await until(lambda: session.state is SessionState.READY)
        request = control_pb2.GetServerInfoRequest()
        answer = await call_worker(session, lambda control: control.GetServerInfo(request, timeout=5))
        assert answer.sessions


async def problem(address: str, link: LinkSettings) -> str:
    """Return what a coordinator says that cannot connect."""
    async with coordinating(address, link) as pool:
        session = pool.sessions[0]
        await until(lambda: session.last_error != "not connected yet")
        assert session.state is SessionState.CONNECTING
        return session.last_error


async def call(address: str, method: str, link: LinkSettings) -> grpc.StatusCode:
    """Call a method with an empty request; returns the status."""
    async with Link(link).open_channel(address) as channel:
        return await refusal(channel, method)


async def refusal(channel: grpc.aio.Channel, method: str) -> grpc.StatusCode:
    """Call a method that fails; returns the status."""
    calling: Any = channel.unary_unary(method, lambda _: b"", lambda answer: answer)
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await calling(None, timeout=5)
    return refused.value.code()


# Who gets in.


async def test_certificates_of_one_authority_let_both_sides_in(site: Site) -> None:
    """The worker has a server's certificate, the coordinator a client's."""
    async with guarded(site.worker) as worker:
        await works(worker.address, site.coordinator)


async def test_a_token_lets_in(site: Site) -> None:
    """Without TLS, as on a private network."""
    async with guarded(site.token) as worker:
        await works(worker.address, site.token)


async def test_a_token_over_tls_needs_no_certificate_of_the_coordinators(site: Site) -> None:
    """The worker shows a certificate, the coordinator a token."""
    async with guarded(replace(site.worker, ca=None, token_file=site.tokens)) as worker:
        await works(worker.address, LinkSettings(ca=site.ca, token_file=site.tokens))


async def test_the_documented_commands_make_certificates_that_let_in(tmp_path: Path) -> None:
    """Those of docs/security.md, as they stand there."""
    document = (Path(__file__).parents[3] / "docs/security.md").read_text()
    commands = document.partition("### Certificates")[2].partition("```sh\n")[2].partition("```")[0]
    running = await asyncio.create_subprocess_exec(
        "bash", "-ec", commands, cwd=tmp_path, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
    )
    assert await running.wait() == 0

    def link(name: str) -> LinkSettings:
        return LinkSettings(tmp_path / f"{name}.crt", tmp_path / f"{name}.key", tmp_path / "ca.crt")

    async with guarded(link("worker")) as worker:
        await works(worker.address, link("coordinator"))


# Who does not.


@pytest.fixture
def strangers(site: Site) -> list[LinkSettings]:
    """Links without a certificate that the worker takes."""
    other = Authority().issue(site.folder, "stranger")
    return [
        LinkSettings(),
        LinkSettings(ca=site.ca),
        LinkSettings(other.cert, other.key, site.ca),
        LinkSettings(ca=site.ca, token="right"),
    ]


async def test_no_method_answers_without_a_certificate(site: Site, strangers: list[LinkSettings]) -> None:
    """Whatever is in the protocol: sessions, weights, tokenizers."""
    async with guarded(site.worker) as worker:
        for stranger in strangers:
            for method in METHODS:
                assert await call(worker.address, method, stranger) is grpc.StatusCode.UNAVAILABLE
        assert worker.server_info().sessions == 0


async def test_no_method_answers_without_the_token(site: Site) -> None:
    """Whatever is in the protocol, and however the token is wrong."""
    async with guarded(site.token) as worker:
        for stranger in (LinkSettings(), LinkSettings(token="wrong")):
            for method in METHODS:
                assert await call(worker.address, method, stranger) is grpc.StatusCode.UNAUTHENTICATED
        assert worker.server_info().sessions == 0


async def test_a_certificate_does_not_replace_the_token(site: Site) -> None:
    """A worker that asks for both gets both."""
    async with guarded(replace(site.worker, token_file=site.tokens)) as worker:
        assert await call(worker.address, METHODS[0], site.coordinator) is grpc.StatusCode.UNAUTHENTICATED
        await works(worker.address, replace(site.coordinator, token_file=site.tokens))


async def test_a_worker_cannot_pose_as_a_coordinator(site: Site) -> None:
    """Its certificate is a server's; the other workers refuse it."""
    assert site.worker.cert is not None
    assert site.worker.key is not None
    credentials = grpc.ssl_channel_credentials(
        site.authority.pem, site.worker.key.read_bytes(), site.worker.cert.read_bytes()
    )
    options = [("grpc.ssl_target_name_override", SERVER_NAME)]
    async with (
        guarded(site.worker) as worker,
        grpc.aio.secure_channel(worker.address, credentials, options) as channel,
    ):
        assert await refusal(channel, METHODS[0]) is grpc.StatusCode.UNAVAILABLE


# What they are told.


async def test_coordinators_say_what_is_wrong_with_certificates(site: Site, strangers: list[LinkSettings]) -> None:
    """Each in words that name what to do."""
    plain, no_certificate, stranger, _ = strangers
    other_ca = Authority("other").write(site.folder / "other.crt")
    namesake_ca = Authority().write(site.folder / "namesake.crt")
    async with guarded(site.worker) as worker:
        told = [
            await problem(worker.address, link)
            for link in (
                plain,
                no_certificate,
                stranger,
                replace(site.coordinator, ca=other_ca),
                replace(site.coordinator, ca=namesake_ca),
                replace(site.coordinator, server_name="another"),
            )
        ]
    words = [
        "may ask for TLS",
        "may ask for a certificate (--link-cert",
        "may refuse our certificate",
        "not from an authority in --link-ca",
        "not from an authority in --link-ca",
        "not for the name another (--link-server-name)",
    ]
    for message, expected in zip(told, words, strict=True):
        assert expected in message


async def test_coordinators_say_that_a_worker_speaks_no_tls(site: Site) -> None:
    """It has to get a certificate."""
    async with guarded(LinkSettings()) as worker:
        assert "speaks no TLS: start it with --link-cert" in await problem(worker.address, site.coordinator)


async def test_both_sides_say_that_a_token_is_wrong(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    """The worker once for each host, however often it is asked; neither shows a token."""
    with caplog.at_level(logging.INFO):
        async with guarded(site.token) as worker:
            assert "refuses our token: --link-token-file" in await problem(worker.address, LinkSettings(token="wrong"))
            assert "asks for a token: --link-token-file" in await problem(worker.address, LinkSettings())
            warnings = [record.message for record in caplog.records if "refusing calls" in record.message]
    assert len(warnings) == 1
    assert "--link-token-file" in warnings[0]
    assert "wrong" not in caplog.text.replace("the token is not known", "")


# Health.


async def health(channel: grpc.aio.Channel) -> int:
    """Ask for health."""
    answer = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=5)
    return int(answer.status)


async def test_health_needs_no_token(site: Site) -> None:
    """Probes have none to show."""
    async with guarded(site.token) as worker, grpc.aio.insecure_channel(worker.address) as channel:
        assert await health(channel) == health_pb2.HealthCheckResponse.SERVING


async def test_a_port_for_health_tells_nothing_else(site: Site) -> None:
    """Where certificates are asked for, probes get a port without them; it serves health alone."""
    async with guarded(site.worker, health_listen="127.0.0.1:0") as worker:
        assert worker.health_address is not None
        async with grpc.aio.insecure_channel(worker.health_address) as channel:
            assert await health(channel) == health_pb2.HealthCheckResponse.SERVING
        for method in METHODS:
            status = await call(worker.health_address, method, LinkSettings())
            assert status is grpc.StatusCode.UNIMPLEMENTED


# Rotation.


async def test_tokens_are_exchanged_one_by_one(site: Site) -> None:
    """Workers take both, then coordinators send the new one, then workers forget the old one."""
    (mine := site.folder / "mine").write_text("right\n")
    coordinator = LinkSettings(token_file=mine)
    async with guarded(site.token) as worker:
        site.tokens.write_text("right\nnext\n")
        await works(worker.address, coordinator)
        mine.write_text("next\nright\n")
        await works(worker.address, coordinator)
        site.tokens.write_text("next\n")
        await works(worker.address, coordinator)
        assert await call(worker.address, METHODS[0], LinkSettings(token="right")) is grpc.StatusCode.UNAUTHENTICATED


async def test_certificates_and_authorities_are_exchanged(site: Site) -> None:
    """Both authorities are trusted for a while; then the old one's certificates let nobody in. Sessions go on."""
    (site.folder / "next").mkdir()
    following = Authority("next")
    old_ca = site.authority.write(site.folder / "former-ca.crt")
    old = site.authority.issue(site.folder, "old", usage=CLIENT)
    async with guarded(site.worker) as worker, coordinating(worker.address, site.coordinator) as pool:
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
        refused = LinkSettings(old.cert, old.key, old_ca)
        assert await call(worker.address, METHODS[0], refused) is grpc.StatusCode.UNAVAILABLE
        assert session.state is SessionState.READY


async def test_a_broken_file_changes_nothing(site: Site) -> None:
    """A worker whose key was overwritten goes on with the one that it has."""
    assert site.worker.key is not None
    async with guarded(site.worker) as worker:
        site.worker.key.write_text("junk")
        await works(worker.address, site.coordinator)
