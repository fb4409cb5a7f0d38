"""Requests to the Kubernetes API, with a fake of it."""

import asyncio
from pathlib import Path

import pytest

from tests.kubernetes import endpoint, endpoint_slice, fake_kubernetes
from tests.workers import until
from tokenwire.coordinator.fleet.discovery.kubernetes_api import (
    ApiAccess,
    ApiFailure,
    KubernetesApi,
    KubernetesSettings,
)
from tokenwire.errors import InvalidRequest

PATH = "/apis/discovery.k8s.io/v1/namespaces/llm/endpointslices"


def test_the_cluster_is_found_in_the_environment(tmp_path: Path) -> None:
    """The API's address comes from the pod's environment; outside a cluster the error states that."""
    inside = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443"}
    assert ApiAccess.find(KubernetesSettings(), inside).url == "https://[fd00::1]:6443"
    assert ApiAccess.find(KubernetesSettings("http://127.0.0.1:8001/"), inside).url == "http://127.0.0.1:8001"
    with pytest.raises(InvalidRequest, match="KUBERNETES_SERVICE_HOST is not set"):
        ApiAccess.find(KubernetesSettings(), {})
    with pytest.raises(InvalidRequest, match="needs a namespace"):
        ApiAccess("http://x", tmp_path).namespace()


async def test_errors_of_the_api_keep_their_message_and_status() -> None:
    """A 403 names the permissions that are missing; a dead API has no status."""
    async with fake_kubernetes() as kubernetes:
        api = KubernetesApi(ApiAccess(kubernetes.url, Path("nowhere")))
        for status, expected in ((403, "get, list and watch on endpointslices"), (503, "HTTP 503: away")):
            kubernetes.failure = (status, "away")
            with pytest.raises(ApiFailure, match=expected) as failed:
                await api.get(PATH, {})
            assert failed.value.status == status

    with pytest.raises(ApiFailure) as failed:
        await api.get(PATH, {})
    assert failed.value.status == 0


async def test_a_watch_yields_events_until_the_server_ends_it() -> None:
    """One for each line, whole."""
    async with fake_kubernetes() as kubernetes:
        watch = KubernetesApi(ApiAccess(kubernetes.url, Path("nowhere"))).watch(PATH, {"resourceVersion": "0"})
        first = asyncio.ensure_future(anext(watch))
        await until(lambda: kubernetes.watches == 1)
        kubernetes.put(endpoint_slice("a", endpoint("10.0.0.1")))
        kubernetes.delete("a")

        assert (await first)["object"]["metadata"]["name"] == "a"
        assert (await anext(watch))["type"] == "DELETED"
        kubernetes.hang_up()
        with pytest.raises(StopAsyncIteration):
            await anext(watch)
