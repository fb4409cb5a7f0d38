"""Workers behind a Kubernetes service, with a fake of its API."""

import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.coordinator.fleet.discovery.running_source import run_source
from tests.kubernetes import FakeKubernetes, endpoint, endpoint_slice, fake_kubernetes
from tests.workers import until
from tokenwire.coordinator.fleet.discovery.kubernetes import KubernetesSource
from tokenwire.coordinator.fleet.discovery.kubernetes_api import ApiAccess, KubernetesApi

ONE, TWO, THREE = (f"10.0.0.{number}:50051" for number in (1, 2, 3))


@pytest.fixture
async def kubernetes() -> AsyncIterator[FakeKubernetes]:
    """An API with one worker."""
    async with fake_kubernetes() as fake:
        fake.put(endpoint_slice("a", endpoint("10.0.0.1")))
        yield fake


def service(kubernetes: FakeKubernetes, account: Path = Path("nowhere"), port: str = "grpc") -> KubernetesSource:
    """Return a service with short retry intervals."""
    api = KubernetesApi(ApiAccess(kubernetes.url, account))
    return KubernetesSource(api, "", "llm", "workers", port, first_retry_s=0.05)


async def test_changes_update_the_addresses(kubernetes: FakeKubernetes) -> None:
    """The list comes first, then every change, also of further slices; unchanged addresses are not an update."""
    async with run_source(service(kubernetes)) as updates:
        await updates.become(ONE)
        await until(lambda: kubernetes.watches == 1)
        kubernetes.put(endpoint_slice("b", endpoint("10.0.0.2")))
        await updates.become(ONE, TWO)
        kubernetes.put(endpoint_slice("b", endpoint("10.0.0.2", ready=False)))
        kubernetes.put(endpoint_slice("a", endpoint("10.0.0.1", terminating=True)))
        await updates.become(TWO)
        kubernetes.delete("a")
        kubernetes.put(endpoint_slice("b", endpoint("10.0.0.2"), endpoint("10.0.0.3")))
        await updates.become(TWO, THREE)

    assert updates.lists == [[ONE], [ONE, TWO], [TWO], [TWO, THREE]]
    before = kubernetes.requests[1]
    assert before["path"] == "/apis/discovery.k8s.io/v1/namespaces/llm/endpointslices"
    assert before["labelSelector"] == "kubernetes.io/service-name=workers"
    assert (before["watch"], before["allowWatchBookmarks"]) == ("true", "true")


async def test_a_watch_continues_after_it_ended(kubernetes: FakeKubernetes) -> None:
    """The next watch starts at the last resource version, bookmarks included, without another list."""
    async with run_source(service(kubernetes)) as updates:
        await until(lambda: kubernetes.watches == 1)
        kubernetes.put(endpoint_slice("a", endpoint("10.0.0.2")))
        kubernetes.bookmark()
        kubernetes.hang_up()
        await until(lambda: len(kubernetes.requests) == 3 and kubernetes.watches == 1)
        kubernetes.put(endpoint_slice("a", endpoint("10.0.0.3")))
        await updates.become(THREE)

    assert kubernetes.lists == 1
    assert kubernetes.requests[2]["resourceVersion"] == "103"


async def test_an_expired_version_is_listed_again(kubernetes: FakeKubernetes) -> None:
    """410 Gone, in a watch or instead of one, leads to a new list, with the missed changes."""
    async with run_source(service(kubernetes)) as updates:
        await until(lambda: kubernetes.watches == 1)
        kubernetes.slices["a"] = endpoint_slice("a", endpoint("10.0.0.2"))
        kubernetes.expire_history()
        await updates.become(TWO)
        await until(lambda: kubernetes.watches == 1)

        kubernetes.slices["a"] = endpoint_slice("a", endpoint("10.0.0.3"))
        kubernetes.oldest = 1_000
        kubernetes.hang_up()
        await until(lambda: kubernetes.lists >= 3)
        await updates.become(THREE)


async def test_an_outage_changes_nothing(kubernetes: FakeKubernetes, caplog: pytest.LogCaptureFixture) -> None:
    """Workers stay; the failure and its end are logged once each, and missed changes are applied."""
    caplog.set_level(logging.INFO)
    async with run_source(service(kubernetes)) as updates:
        await until(lambda: kubernetes.watches == 1)
        kubernetes.failure = (503, "etcd is away")
        kubernetes.hang_up()
        before = len(kubernetes.requests)
        await until(lambda: len(kubernetes.requests) >= before + 3)
        assert updates.lists == [[ONE]]

        kubernetes.failure = None
        await until(lambda: kubernetes.watches == 1)
        kubernetes.put(endpoint_slice("a", endpoint("10.0.0.2")))
        await updates.become(TWO)

    assert caplog.text.count("etcd is away") == 1
    assert caplog.text.count("can be watched again") == 1


async def test_missing_permissions_are_logged(kubernetes: FakeKubernetes, caplog: pytest.LogCaptureFixture) -> None:
    """A 403 names the permissions that the account needs; they are used as soon as they are granted."""
    kubernetes.failure = (403, "forbidden for you")
    async with run_source(service(kubernetes)) as updates:
        await until(lambda: "get, list and watch on endpointslices" in caplog.text)
        kubernetes.failure = None
        await updates.become(ONE)


async def test_the_token_is_read_for_each_request(kubernetes: FakeKubernetes, tmp_path: Path) -> None:
    """Tokens rotate: each request has the current one, and no log has any."""
    (tmp_path / "token").write_text("first\n")
    async with run_source(service(kubernetes, tmp_path)):
        await until(lambda: kubernetes.watches == 1)
        (tmp_path / "token").write_text("second\n")
        kubernetes.hang_up()
        await until(lambda: len(kubernetes.requests) == 3)

    assert [request["authorization"] for request in kubernetes.requests] == [
        "Bearer first",
        "Bearer first",
        "Bearer second",
    ]


async def test_an_unknown_port_is_logged(kubernetes: FakeKubernetes, caplog: pytest.LogCaptureFixture) -> None:
    """A wrong port name leaves no workers; the log lists the existing names."""
    async with run_source(service(kubernetes, port="tokens")) as updates:
        await updates.become()

    assert "llm/workers has no port named tokens, only: grpc, metrics" in caplog.text
