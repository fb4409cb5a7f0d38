"""A minimal Kubernetes API client: get and watch, with the pod's service account."""

import json
import os
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenwire.errors import InvalidRequest
from tokenwire.options import Option, option

if TYPE_CHECKING:
    import aiohttp

_TIMEOUT_S = 15.0
_WATCH_S = 120
"""The server ends a watch after this: the longest time for which a dead connection goes undetected."""


class ApiFailure(Exception):
    """The API did not respond, or with an error."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class KubernetesSettings:
    """Access to a cluster, if it is not that of any pod."""

    api: str | None = option(
        None,
        Option(
            "",
            "URL of the Kubernetes API, for workers found by k8s:.",
            variable="TOKENWIRE_KUBERNETES_API",
            default_text="the cluster's own",
            apart=True,
        ),
    )
    account: Path = option(
        Path("/var/run/secrets/kubernetes.io/serviceaccount"),
        Option(
            "",
            "Directory of the service account for it: token, ca.crt and namespace.",
            variable="TOKENWIRE_KUBERNETES_ACCOUNT",
            path="any",
            parse=Path,
            apart=True,
        ),
    )


@dataclass(frozen=True, slots=True)
class ApiAccess:
    """The URL of the API, and the directory of the service account."""

    url: str
    account: Path

    @classmethod
    def find(cls, settings: KubernetesSettings, environment: Mapping[str, str] = os.environ) -> "ApiAccess":
        """Return the access to the configured cluster, or to the one that this runs in. Raises InvalidRequest."""
        if settings.api:
            return cls(settings.api.rstrip("/"), settings.account)
        host, port = environment.get("KUBERNETES_SERVICE_HOST"), environment.get("KUBERNETES_SERVICE_PORT", "443")
        if not host:
            raise InvalidRequest("k8s: works only inside a cluster: KUBERNETES_SERVICE_HOST is not set")
        return cls(f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}", settings.account)

    def namespace(self) -> str:
        """Return the pod's namespace. Raises InvalidRequest."""
        try:
            return (self.account / "namespace").read_text().strip()
        except OSError as error:
            raise InvalidRequest(f"k8s: needs a namespace, k8s:NAMESPACE/SERVICE:PORT: {error}") from error

    def token(self) -> str | None:
        """Read the token, which is rotated; None without one."""
        try:
            return (self.account / "token").read_text().strip()
        except OSError:
            return None

    def trust(self) -> ssl.SSLContext:
        """Read the CA of the API."""
        ca = self.account / "ca.crt"
        return ssl.create_default_context(cafile=ca if ca.exists() else None)


class KubernetesApi:
    """Requests to the API, each with its own connection, so that rotated tokens and CAs apply at once.

    Both methods raise ApiFailure.
    """

    def __init__(self, access: ApiAccess) -> None:
        self._access = access

    async def get(self, path: str, query: Mapping[str, str]) -> dict[str, Any]:
        """Get an object."""
        async with self._request(path, query, _TIMEOUT_S) as response:
            value: dict[str, Any] = json.loads(await response.read())
            return value

    async def watch(self, path: str, query: Mapping[str, str]) -> AsyncIterator[dict[str, Any]]:
        """Yield the events of a watch until the server ends it."""
        watch = {**query, "watch": "true", "timeoutSeconds": str(_WATCH_S)}
        async with self._request(path, watch, _WATCH_S + _TIMEOUT_S) as response:
            rest = b""
            async for piece in response.content.iter_any():
                *lines, rest = (rest + piece).split(b"\n")
                for line in lines:
                    yield json.loads(line)

    @asynccontextmanager
    async def _request(
        self, path: str, query: Mapping[str, str], timeout_s: float
    ) -> AsyncIterator["aiohttp.ClientResponse"]:
        import aiohttp  # imported only if needed: it takes a fifth of a second

        token = self._access.token()
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        timeout = aiohttp.ClientTimeout(total=timeout_s, connect=_TIMEOUT_S)
        try:
            connector = aiohttp.TCPConnector(ssl=self._access.trust())
            async with (
                aiohttp.ClientSession(connector=connector, timeout=timeout, headers=headers) as session,
                session.get(self._access.url + path, params=query, allow_redirects=False) as response,
            ):
                if response.status != 200:
                    raise ApiFailure(_reason(response.status, await response.text()), response.status)
                yield response
        except TimeoutError as error:
            raise ApiFailure(f"no response within {timeout_s:.0f} s") from error
        except (aiohttp.ClientError, OSError) as error:
            raise ApiFailure(str(error)) from error
        except ValueError as error:
            raise ApiFailure(f"the response is not JSON: {error}") from error


def _reason(status: int, body: str) -> str:
    try:
        message = json.loads(body)["message"]
    except (ValueError, KeyError, TypeError):
        message = body[:200]
    hint = "; its service account needs get, list and watch on endpointslices" if status == 403 else ""
    return f"HTTP {status}: {message}{hint}"
