"""Values of --worker."""

from collections.abc import Collection
from pathlib import Path

import pytest

from tokenwire.coordinator.fleet.discovery.dns import DnsSource
from tokenwire.coordinator.fleet.discovery.file import FileSource
from tokenwire.coordinator.fleet.discovery.kubernetes import KubernetesSource
from tokenwire.coordinator.fleet.discovery.kubernetes_api import KubernetesSettings
from tokenwire.coordinator.fleet.discovery.parse import check_source, parse_source
from tokenwire.coordinator.fleet.discovery.source import StaticSource
from tokenwire.errors import InvalidRequest


@pytest.mark.parametrize(
    "value", ["host", "host:", ":1", "host:70000", "host:1/path", "unix:", "http://host", "file:", "dns:host",
              "dns:http://host", "k8s:Service:1", "k8s:a/b/c:1", "k8s:service", "a b:1"],
)  # fmt: skip
def test_invalid_values_are_rejected(value: str) -> None:
    """The error names the value, or the expected form."""
    with pytest.raises(InvalidRequest, match=r"not a worker address|expected|needs a"):
        check_source(value, KubernetesSettings("http://127.0.0.1:1"))


def test_values_select_their_source(tmp_path: Path) -> None:
    """By prefix; without one, a value is an address."""
    kubernetes = KubernetesSettings("http://127.0.0.1:1", tmp_path)
    (tmp_path / "namespace").write_text("here\n")
    kinds: dict[str, Collection[str]] = {
        StaticSource.__name__: ["host:1", "[::1]:1", "unix:/a b", "https://h-1.example:1/", "10.0.0.1:65535"],
        FileSource.__name__: ["file:relative/path"],
        DnsSource.__name__: ["dns:workers.llm.svc:50051", "dns:http://workers:8000"],
        KubernetesSource.__name__: ["k8s:llm/workers:grpc", "k8s:workers:50051", "k8s:http://llm/vllm:8000"],
    }
    for kind, values in kinds.items():
        assert {type(parse_source(value, lambda address: False, kubernetes)).__name__ for value in values} == {kind}
