"""Workers behind a Kubernetes service: watches its EndpointSlices."""

import asyncio
import logging
import random
from collections.abc import Mapping
from typing import Any

from tokenwire.coordinator.fleet.discovery.endpoint_slices import EndpointSlices
from tokenwire.coordinator.fleet.discovery.kubernetes_api import ApiFailure, KubernetesApi
from tokenwire.coordinator.fleet.discovery.source import Update

log = logging.getLogger(__name__)

_GONE = 410
_LAST_RETRY_S = 30.0


class KubernetesSource:
    """Lists a service's slices once, then watches them; lists again when the resource version has expired."""

    def __init__(
        self,
        api: KubernetesApi,
        scheme: str,
        namespace: str,
        service: str,
        port: str,
        first_retry_s: float = 1.0,
    ) -> None:
        self._api = api
        self._scheme = scheme
        self._path = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
        self._selector = {"labelSelector": f"kubernetes.io/service-name={service}"}
        self._name = f"{namespace}/{service}"
        self._port = port
        self._first_retry_s = first_retry_s
        self._slices = EndpointSlices(port)
        self._version = ""
        """Resource version of the watch; empty: list first."""
        self._reported: list[str] | None = None
        self._failure = ""

    async def run(self, update: Update) -> None:
        """Call `update` when the addresses change; while the API is unreachable, the last ones stay."""
        retry_s = self._first_retry_s
        while True:
            try:
                if not self._version:
                    await self._list(update)
                    self._log_failure("")
                since = {"resourceVersion": self._version, "allowWatchBookmarks": "true"}
                async for event in self._api.watch(self._path, self._selector | since):
                    self._take(event, update)
                    self._log_failure("")
                    retry_s = self._first_retry_s
                self._log_failure("")
                delay_s = self._first_retry_s  # the server ends every watch after a while
            except ApiFailure as error:
                if error.status == _GONE:
                    self._version = ""
                else:
                    self._log_failure(str(error))
                delay_s, retry_s = retry_s, min(retry_s * 2, _LAST_RETRY_S)
            await asyncio.sleep(delay_s * random.uniform(0.5, 1.0))  # noqa: S311 (spreads retries, no secret)

    async def _list(self, update: Update) -> None:
        response = await self._api.get(self._path, self._selector)
        self._slices.replace(response.get("items") or ())
        self._version = response["metadata"]["resourceVersion"]
        self._report(update)

    def _take(self, event: Mapping[str, Any], update: Update) -> None:
        kind, changed = event["type"], event["object"]
        if kind == "ERROR":
            raise ApiFailure(str(changed.get("message") or changed), changed.get("code") or 0)
        self._version = changed["metadata"]["resourceVersion"]
        if kind != "BOOKMARK":
            self._slices.apply(kind, changed)
            self._report(update)

    def _report(self, update: Update) -> None:
        addresses = [self._scheme + address for address in self._slices.addresses()]
        if addresses == self._reported:
            return
        self._reported = addresses
        names = sorted({*self._slices.port_names()})
        if not addresses and names and not self._port.isdigit() and self._port not in names:
            log.warning("%s has no port named %s, only: %s", self._name, self._port, ", ".join(names))
        update(addresses)

    def _log_failure(self, failure: str) -> None:
        if failure and failure != self._failure:
            log.warning("workers of service %s cannot be watched, keeping known ones: %s", self._name, failure)
        elif self._failure and not failure:
            log.info("workers of service %s can be watched again", self._name)
        self._failure = failure
