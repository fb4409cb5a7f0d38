"""A health port without TLS, because Kubernetes' probes cannot present client certificates."""

import grpc
from grpc_health.v1 import health_pb2_grpc
from grpc_health.v1._async import HealthServicer

from tokenwire.peer_auth.grpc_options import SERVER


class HealthServer:
    """Serves a worker's gRPC health at its own address."""

    def __init__(self, address: str, health: HealthServicer) -> None:
        self._server = grpc.aio.server(options=SERVER)
        health_pb2_grpc.add_HealthServicer_to_server(health, self._server)
        self._address = address
        self.address = address

    async def startup(self) -> None:
        """Start listening. Raises OSError."""
        try:
            port = self._server.add_insecure_port(self._address)
        except RuntimeError as error:
            raise OSError(f"cannot listen on {self._address} (--health-listen): {error}") from error
        if not self._address.startswith("unix:"):
            self.address = f"{self._address.rpartition(':')[0]}:{port}"
        await self._server.start()

    async def stop(self) -> None:
        """Close the port."""
        await self._server.stop(grace=0.2)
