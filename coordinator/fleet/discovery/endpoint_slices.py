"""The EndpointSlices of one service, and the worker addresses in them."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tokenwire.coordinator.fleet.discovery.source import join_port

Slice = Mapping[str, Any]


class EndpointSlices:
    """Slices by name, from lists and watches.

    An endpoint counts until it terminates, ready or not: a worker's session shows sooner than its probes whether it
    takes requests, and probes that fail everywhere at once must not empty the fleet.
    """

    def __init__(self, port: str) -> None:
        """`port` is a number, or the name of a port of the service."""
        self._port = port
        self._slices: dict[str, Slice] = {}

    def replace(self, slices: Iterable[Slice]) -> None:
        """Replace all slices."""
        self._slices = {each["metadata"]["name"]: each for each in slices}

    def apply(self, kind: str, changed: Slice) -> None:
        """Apply a watch event: ADDED, MODIFIED or DELETED."""
        name = changed["metadata"]["name"]
        if kind == "DELETED":
            self._slices.pop(name, None)
        else:
            self._slices[name] = changed

    def addresses(self) -> list[str]:
        """Return the address of every endpoint that is not terminating, one for each pod."""
        found: dict[str, str] = {}
        terminating = set()
        # Slices overlap while endpoints move between them, and pods of two families are in slices of both: IPv4 first.
        for each in sorted(self._slices.values(), key=lambda each: str(each.get("addressType"))):
            port = self._port_of(each)
            for endpoint in each.get("endpoints") or ():
                pod = (endpoint.get("targetRef") or {}).get("uid") or endpoint["addresses"][0]
                if (endpoint.get("conditions") or {}).get("terminating"):
                    terminating.add(pod)
                if port is not None:
                    found.setdefault(pod, join_port(endpoint["addresses"][0], port))
        return sorted({address for pod, address in found.items() if pod not in terminating})

    def port_names(self) -> Iterator[str]:
        """Yield the names of all ports, for error messages."""
        return (port.get("name") or "" for each in self._slices.values() for port in each.get("ports") or ())

    def _port_of(self, each: Slice) -> int | None:
        if self._port.isdigit():
            return int(self._port)
        numbers = (port.get("port") for port in each.get("ports") or () if port.get("name") == self._port)
        return next(numbers, None)
