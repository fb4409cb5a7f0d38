"""A service in Kubernetes is followed, through everything that its API does."""

import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.coordinator.fleet.discovery.followed import followed
from tests.kubernetes import FakeKubernetes, endpoint, endpoint_slice, fake_kubernetes
from tests.workers import until
from tokenwire.coordinator.fleet.discovery.kubernetes import KubernetesService
from tokenwire.coordinator.fleet.discovery.kubernetes_api import ApiAccess, KubernetesApi
from tokenwire.errors import InvalidRequest

ONE, TWO, THREE = (f"10.0.0.{number}:50051" for number in (1, 2, 3))


@pytest.fixture
async def kubernetes() -> AsyncIterator[FakeKubernetes]:
    """An API with one worker."""
    async with fake_kubernetes() as fake:
        fake.put(endpoint_slice("a", endpoint("10.0.0.1")))
        yield fake


def service(kubernetes: FakeKubernetes, account: Path = Path("nowhere"), port: str = "grpc") -> KubernetesService:
    """Return a service to follow, with little patience."""
    api = KubernetesApi(ApiAccess(kubernetes.url, account))
    return KubernetesService(api, "", "llm", "workers", port, first_retry_s=0.05)


async def test_changes_are_heard_of(kubernetes: FakeKubernetes) -> None:
    """The list comes first, then every change, also of further slices; what changes nothing is not told."""
    async with followed(service(kubernetes)) as told:
        await told.become(ONE)
        await until(lambda: kubernetes.watches == 1)
        kubernetes.put(endpoint_slice("b", endpoint("10.0.0.2")))
        await told.become(ONE, TWO)
        kubernetes.put(endpoint_slice("b", endpoint("10.0.0.2", ready=False)))
        kubernetes.put(endpoint_slice("a", endpoint("10.0.0.1", terminating=True)))
        await told.become(TWO)
        kubernetes.delete("a")
        kubernetes.put(endpoint_slice("b", endpoint("10.0.0.2"), endpoint("10.0.0.3")))
        await told.become(TWO, THREE)

    assert told.lists == [[ONE], [ONE, TWO], [TWO], [TWO, THREE]]
    asked = kubernetes.requests[1]
    assert asked["path"] == "/apis/discovery.k8s.io/v1/namespaces/llm/endpointslices"
    assert asked["labelSelector"] == "kubernetes.io/service-name=workers"
    assert (asked["watch"], asked["allowWatchBookmarks"]) == ("true", "true")


async def test_a_watch_that_ends_goes_on_where_it_was(kubernetes: FakeKubernetes) -> None:
    """The next watch begins at the last version that was heard of, bookmarks included, without another list."""
    async with followed(service(kubernetes)) as told:
        await until(lambda: kubernetes.watches == 1)
        kubernetes.put(endpoint_slice("a", endpoint("10.0.0.2")))
        kubernetes.bookmark()
        kubernetes.hang_up()
        await until(lambda: len(kubernetes.requests) == 3 and kubernetes.watches == 1)
        kubernetes.put(endpoint_slice("a", endpoint("10.0.0.3")))
        await told.become(THREE)

    assert kubernetes.lists == 1
    assert kubernetes.requests[2]["resourceVersion"] == "103"


async def test_what_the_api_forgot_is_listed_again(kubernetes: FakeKubernetes) -> None:
    """410 Gone, in a watch or instead of one, leads to a new list, with what was missed."""
    async with followed(service(kubernetes)) as told:
        await until(lambda: kubernetes.watches == 1)
        kubernetes.slices["a"] = endpoint_slice("a", endpoint("10.0.0.2"))
        kubernetes.forget()
        await told.become(TWO)
        await until(lambda: kubernetes.watches == 1)

        kubernetes.slices["a"] = endpoint_slice("a", endpoint("10.0.0.3"))
        kubernetes.oldest = 1_000
        kubernetes.hang_up()
        await until(lambda: kubernetes.lists >= 3)
        await told.become(THREE)


async def test_an_outage_changes_nothing(kubernetes: FakeKubernetes, caplog: pytest.LogCaptureFixture) -> None:
    """Workers stay known, the log says once what is wrong and that it is over, and what was missed is caught up."""
    caplog.set_level(logging.INFO)
    async with followed(service(kubernetes)) as told:
        await until(lambda: kubernetes.watches == 1)
        kubernetes.failure = (503, "etcd is away")
        kubernetes.hang_up()
        asked = len(kubernetes.requests)
        await until(lambda: len(kubernetes.requests) >= asked + 3)
        assert told.lists == [[ONE]]

        kubernetes.failure = None
        await until(lambda: kubernetes.watches == 1)
        kubernetes.put(endpoint_slice("a", endpoint("10.0.0.2")))
        await told.become(TWO)

    assert caplog.text.count("etcd is away") == 1
    assert caplog.text.count("can be watched again") == 1


async def test_missing_rights_are_named(kubernetes: FakeKubernetes, caplog: pytest.LogCaptureFixture) -> None:
    """A 403 says what the account needs; the right is used as soon as it is given."""
    kubernetes.failure = (403, "forbidden for you")
    async with followed(service(kubernetes)) as told:
        await until(lambda: "get, list and watch on endpointslices" in caplog.text)
        kubernetes.failure = None
        await told.become(ONE)


async def test_the_token_is_read_anew(kubernetes: FakeKubernetes, tmp_path: Path) -> None:
    """Tokens rotate: each question carries the one of the moment, and no log has any."""
    (tmp_path / "token").write_text("first\n")
    async with followed(service(kubernetes, tmp_path)):
        await until(lambda: kubernetes.watches == 1)
        (tmp_path / "token").write_text("second\n")
        kubernetes.hang_up()
        await until(lambda: len(kubernetes.requests) == 3)

    assert [request["authorization"] for request in kubernetes.requests] == [
        "Bearer first",
        "Bearer first",
        "Bearer second",
    ]


async def test_a_port_that_nobody_has_is_named(kubernetes: FakeKubernetes, caplog: pytest.LogCaptureFixture) -> None:
    """A wrong name of a port leaves no workers, and the log says which names there are."""
    async with followed(service(kubernetes, port="tokens")) as told:
        await told.become()

    assert "llm/workers has no port named tokens, only: grpc, metrics" in caplog.text


def test_the_cluster_is_found_in_the_environment(tmp_path: Path) -> None:
    """The API's address comes from the pod's environment; outside of a cluster the error says so."""
    inside = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443"}
    assert ApiAccess.from_environment(inside).url == "https://[fd00::1]:6443"
    with pytest.raises(InvalidRequest, match="KUBERNETES_SERVICE_HOST is not set"):
        ApiAccess.from_environment({})
    with pytest.raises(InvalidRequest, match="needs a namespace"):
        ApiAccess("http://x", tmp_path).namespace()
