"""The worker's side of peer authentication: a gRPC port that requires certificates or tokens."""

import logging
from collections.abc import Awaitable, Callable
from typing import Any

import grpc

from tokenwire.errors import InvalidRequest
from tokenwire.peer_auth.certificates import read_authorities, read_certificate
from tokenwire.peer_auth.grpc_options import SERVER, is_local
from tokenwire.peer_auth.peer_tokens import PeerTokens, open_tokens
from tokenwire.peer_auth.settings import PeerAuthSettings
from tokenwire.process.hot_reload import Reloading

log = logging.getLogger(__name__)

_HEALTH = "/grpc.health.v1.Health/"
_MOST_NAMED = 100


class AuthenticatedPort:
    """Creates a gRPC server that authenticates its callers by certificate, token, or both."""

    def __init__(self, settings: PeerAuthSettings) -> None:
        """Read the files. Raises InvalidRequest."""
        if settings.ca is not None and settings.cert is None:
            raise InvalidRequest("--peer-ca needs --peer-cert and --peer-key too: the worker needs its own certificate")
        self._tokens = open_tokens(settings)
        self._encrypted = settings.cert is not None
        self._open = settings.ca is None and self._tokens is None
        if self._encrypted and self._open:
            raise InvalidRequest(
                "--peer-cert alone does not authenticate coordinators: require their certificates with --peer-ca "
                "or a token with --peer-token-file"
            )
        self._credentials = _open_credentials(settings)

    def make_server(self) -> grpc.aio.Server:
        """Return a server that does not listen yet."""
        interceptors = [] if self._tokens is None else [_TokenCheck(self._tokens)]
        return grpc.aio.server(options=SERVER, interceptors=interceptors)

    def listen(self, server: grpc.aio.Server, address: str) -> int:
        """Make a server listen on an address; return the port. Raises RuntimeError."""
        if self._credentials is not None:
            return server.add_secure_port(address, self._credentials)
        return server.add_insecure_port(address)

    def warn(self, address: str) -> None:
        """Log a warning if an address that other machines can reach is not protected."""
        if is_local(address):
            return
        if self._open:
            log.warning(
                "%s accepts all connections: require certificates (--peer-cert, --peer-key, --peer-ca) or a token "
                "(--peer-token-file), or restrict its network to coordinators",
                address,
            )
        elif not self._encrypted:
            log.warning("the peer token is sent to %s unencrypted: enable TLS with --peer-cert and --peer-key", address)


class _TokenCheck(grpc.aio.ServerInterceptor):
    """Requires a token for all calls except health checks."""

    def __init__(self, tokens: Callable[[], PeerTokens]) -> None:
        self._tokens = tokens
        self._named: set[str] = set()

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        """Return the handler of a call, or one that rejects it."""
        if handler_call_details.method.startswith(_HEALTH):
            return await continuation(handler_call_details)
        metadata = dict(handler_call_details.invocation_metadata or ())
        authorization = str(metadata.get("authorization", ""))
        if self._tokens().match(authorization):
            return await continuation(handler_call_details)
        problem = "the call has no token" if not authorization else "the token is not accepted here"

        async def refuse(requests: Any, context: grpc.aio.ServicerContext[Any, Any]) -> None:
            self._name(context.peer(), problem)
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, problem)

        # As a stream, whatever the call is, so that its request is not read.
        return grpc.stream_stream_rpc_method_handler(refuse)

    def _name(self, peer: str, problem: str) -> None:
        host = peer.rpartition(":")[0]
        if host not in self._named and len(self._named) < _MOST_NAMED:
            self._named.add(host)
            log.warning("rejecting calls from %s: %s (--peer-token-file must match on both sides)", peer, problem)


def _open_credentials(settings: PeerAuthSettings) -> grpc.ServerCredentials | None:
    cert, key, ca = settings.cert, settings.key, settings.ca
    if cert is None or key is None:
        return None

    def read() -> Any:
        own = read_certificate(cert, key, ("--peer-cert", "--peer-key"), "server")
        authorities = None if ca is None else read_authorities(ca, "--peer-ca")
        return grpc.ssl_server_certificate_configuration([(own.key, own.chain)], authorities)

    files = [cert, key] if ca is None else [cert, key, ca]
    follow = _Following(Reloading(files, read))
    return grpc.dynamic_ssl_server_credentials(
        follow.first, follow.changed, require_client_authentication=ca is not None
    )


class _Following:
    """Provides gRPC with a changed configuration before a handshake."""

    def __init__(self, configuration: Reloading[Any]) -> None:
        self._configuration = configuration
        self._last = self.first = configuration.current()

    def changed(self) -> Any:
        """Return the new configuration; None if unchanged."""
        current = self._configuration.current()
        if current is self._last:
            return None
        self._last = current
        return current
