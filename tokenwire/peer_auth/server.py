"""The worker's end of the link: who may call, and the port that asks them."""

import logging
from collections.abc import Awaitable, Callable
from typing import Any

import grpc

from tokenwire.errors import InvalidRequest
from tokenwire.hot_reload import Reloading
from tokenwire.peer_auth.certificates import read_authorities, read_certificate
from tokenwire.peer_auth.grpc_options import SERVER, is_local
from tokenwire.peer_auth.settings import LinkSettings
from tokenwire.peer_auth.tokens import Tokens, open_tokens

log = logging.getLogger(__name__)

_HEALTH = "/grpc.health.v1.Health/"
_MOST_NAMED = 100


class GuardedPort:
    """Makes a gRPC server that only those may call who have a certificate, a token, or whatever is asked for."""

    def __init__(self, settings: LinkSettings) -> None:
        """Read the files. Raises InvalidRequest."""
        if settings.ca is not None and settings.cert is None:
            raise InvalidRequest("--link-ca needs --link-cert and --link-key too: a worker shows a certificate itself")
        self._tokens = open_tokens(settings)
        self._encrypted = settings.cert is not None
        self._open = settings.ca is None and self._tokens is None
        if self._encrypted and self._open:
            raise InvalidRequest(
                "--link-cert alone lets anybody in: ask coordinators for a certificate with --link-ca "
                "or for a token with --link-token-file"
            )
        self._credentials = _open_credentials(settings)

    def make_server(self) -> grpc.aio.Server:
        """Return a server that listens nowhere yet."""
        interceptors = [] if self._tokens is None else [_TokenCheck(self._tokens)]
        return grpc.aio.server(options=SERVER, interceptors=interceptors)

    def listen(self, server: grpc.aio.Server, address: str) -> int:
        """Have a server listen at an address; returns the port. Raises RuntimeError."""
        if self._credentials is not None:
            return server.add_secure_port(address, self._credentials)
        return server.add_insecure_port(address)

    def warn(self, address: str) -> None:
        """Say in the log what does not protect an address that other machines reach."""
        if is_local(address):
            return
        if self._open:
            log.warning(
                "%s accepts anybody who reaches it: ask for certificates (--link-cert, --link-key, --link-ca) or a "
                "token (--link-token-file), or keep it on a network that only coordinators reach",
                address,
            )
        elif not self._encrypted:
            log.warning("the link token travels in clear to %s: encrypt it with --link-cert and --link-key", address)


class _TokenCheck(grpc.aio.ServerInterceptor):
    """Lets those call who bring a token, and everybody ask for health."""

    def __init__(self, tokens: Callable[[], Tokens]) -> None:
        self._tokens = tokens
        self._named: set[str] = set()

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        """Return the handler of a call, or one that refuses it."""
        if handler_call_details.method.startswith(_HEALTH):
            return await continuation(handler_call_details)
        metadata = dict(handler_call_details.invocation_metadata or ())
        authorization = str(metadata.get("authorization", ""))
        if self._tokens().match(authorization):
            return await continuation(handler_call_details)
        problem = "no token came with the call" if not authorization else "the token is not known here"

        async def refuse(requests: Any, context: grpc.aio.ServicerContext[Any, Any]) -> None:
            self._name(context.peer(), problem)
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, problem)

        # As a stream, whatever the call is: so nothing of its request is read.
        return grpc.stream_stream_rpc_method_handler(refuse)

    def _name(self, peer: str, problem: str) -> None:
        host = peer.rpartition(":")[0]
        if host not in self._named and len(self._named) < _MOST_NAMED:
            self._named.add(host)
            log.warning("refusing calls from %s: %s (--link-token-file here and there)", peer, problem)


def _open_credentials(settings: LinkSettings) -> grpc.ServerCredentials | None:
    cert, key, ca = settings.cert, settings.key, settings.ca
    if cert is None or key is None:
        return None

    def read() -> Any:
        own = read_certificate(cert, key, ("--link-cert", "--link-key"), "server")
        authorities = None if ca is None else read_authorities(ca, "--link-ca")
        return grpc.ssl_server_certificate_configuration([(own.key, own.chain)], authorities)

    files = [cert, key] if ca is None else [cert, key, ca]
    follow = _Following(Reloading(files, read))
    return grpc.dynamic_ssl_server_credentials(
        follow.first, follow.changed, require_client_authentication=ca is not None
    )


class _Following:
    """Tells gRPC, before each handshake, of a configuration that it does not have yet."""

    def __init__(self, configuration: Reloading[Any]) -> None:
        self._configuration = configuration
        self._told = self.first = configuration.current()

    def changed(self) -> Any:
        """Return the new configuration; None where nothing has changed."""
        current = self._configuration.current()
        if current is self._told:
            return None
        self._told = current
        return current
