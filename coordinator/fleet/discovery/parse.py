"""Parses values of --worker into discovery sources."""

import re
from pathlib import Path

from tokenwire.coordinator.fleet.discovery.dns import DnsSource, Serves
from tokenwire.coordinator.fleet.discovery.file import FileSource
from tokenwire.coordinator.fleet.discovery.kubernetes import KubernetesSource
from tokenwire.coordinator.fleet.discovery.kubernetes_api import ApiAccess, KubernetesApi, KubernetesSettings
from tokenwire.coordinator.fleet.discovery.source import DiscoverySource, StaticSource, check_address, split_scheme
from tokenwire.errors import InvalidRequest

_NAME = re.compile(r"(?P<host>[\w.-]+):(?P<port>\d{1,5})")
_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SERVICE = re.compile(rf"((?P<namespace>{_LABEL})/)?(?P<service>{_LABEL}):(?P<port>\d{{1,5}}|{_LABEL})")


def is_changing(value: str) -> bool:
    """Return whether a value is a source whose workers change."""
    return value.startswith(("file:", "dns:", "k8s:"))


def is_vllm_http(value: str) -> bool:
    """Return whether a value is explicitly for plain vLLM servers over HTTP."""
    return bool(split_scheme(value.split(":", 1)[1] if is_changing(value) else value)[0])


def check_source(value: str, kubernetes: KubernetesSettings) -> None:
    """Validate a value of --worker. Raises InvalidRequest with the reason."""
    parse_source(value, lambda address: False, kubernetes)


def parse_source(value: str, serves: Serves, kubernetes: KubernetesSettings) -> DiscoverySource:
    """Return the source for a value of --worker. Raises InvalidRequest with the reason."""
    kind, _, rest = value.partition(":")
    if not is_changing(value):
        return StaticSource(check_address(value))
    if kind == "file":
        if not rest:
            raise InvalidRequest("--worker file: needs a path, file:PATH")
        return FileSource(Path(rest))
    scheme, name = split_scheme(rest)
    if kind == "dns":
        match = _NAME.fullmatch(name)
        if match is None:
            raise InvalidRequest(f"--worker {value}: expected dns:HOST:PORT")
        return DnsSource(scheme, match["host"], int(match["port"]), serves)
    match = _SERVICE.fullmatch(name)
    if match is None:
        raise InvalidRequest(f"--worker {value}: expected k8s:NAMESPACE/SERVICE:PORT or k8s:SERVICE:PORT")
    access = ApiAccess.find(kubernetes)
    namespace = match["namespace"] or access.namespace()
    return KubernetesSource(KubernetesApi(access), scheme, namespace, match["service"], match["port"])
