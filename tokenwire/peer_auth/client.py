"""The coordinator's side of peer authentication: authenticated channels, and explanations of their errors."""

import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc

from tokenwire.errors import InvalidRequest
from tokenwire.peer_auth.certificates import Certificate, read_authorities, read_certificate
from tokenwire.peer_auth.grpc_options import MOST_EVENT_BYTES, MOST_TOKENIZER_BYTES, client_options, is_local
from tokenwire.peer_auth.message_parts import BoundedChannel
from tokenwire.peer_auth.peer_tokens import PeerTokens, open_tokens
from tokenwire.peer_auth.settings import PeerAuthClientSettings
from tokenwire.process.hot_reload import Reloading

log = logging.getLogger(__name__)

Metadata = tuple[tuple[str, str], ...]

_NO_TLS = PeerAuthClientSettings()


class ChannelFactory:
    """Opens channels to workers. New channels use the current contents of the files; open ones are unaffected."""

    def __init__(
        self,
        settings: PeerAuthClientSettings = _NO_TLS,
        most_event_bytes: int = MOST_EVENT_BYTES,
        most_tokenizer_bytes: int = MOST_TOKENIZER_BYTES,
    ) -> None:
        """Read the files. Raises InvalidRequest."""
        if settings.cert is not None and settings.ca is None:
            raise InvalidRequest("--peer-cert needs --peer-ca too, which verifies workers")
        self._settings = settings
        self._options = client_options(most_event_bytes, most_tokenizer_bytes)
        self.most_event_bytes = most_event_bytes
        """Of a worker's event in a session: a larger one ends it."""
        self.most_tokenizer_bytes = most_tokenizer_bytes
        """Of the files of a worker's tokenizer."""
        self._tokens = open_tokens(settings)
        self._credentials = _open_credentials(settings)
        self._warned = False

    def open_channel(self, address: str) -> BoundedChannel:
        """Open a channel to a worker at `HOST:PORT` or `unix:PATH`."""
        # The largest events are log-probabilities of a prompt: of each, the id takes three bytes and the number four.
        return BoundedChannel(self._open(address), self.most_event_bytes // 2)

    def _open(self, address: str) -> grpc.aio.Channel:
        interceptors = [] if self._tokens is None else [sender(self._tokens) for sender in _TOKEN_SENDERS]
        if self._credentials is not None:
            options = [*self._options, ("grpc.ssl_target_name_override", self._settings.server_name)]
            return grpc.aio.secure_channel(address, self._credentials.current(), options, interceptors=interceptors)
        self._warn(address)
        return grpc.aio.insecure_channel(address, self._options, interceptors=interceptors)

    def metadata(self) -> Metadata | None:
        """Return the metadata of a stream: interceptors would cost time for every message."""
        return None if self._tokens is None else _metadata(self._tokens())

    def explain(self, error: grpc.aio.AioRpcError) -> str | None:
        """Return a message with the remedy for an error of authentication or TLS; None for other errors."""
        details = error.details() or ""
        if error.code() is grpc.StatusCode.UNAUTHENTICATED:
            reason = "requires a token" if self._tokens is None else "rejects our token"
            return f"the worker {reason}: --peer-token-file must have a line in common on both sides ({details})"
        if error.code() is not grpc.StatusCode.UNAVAILABLE:
            return None
        if "Hostname Verification" in details:
            name = self._settings.server_name
            return f"the worker's certificate is not for the name {name} (--peer-server-name)"
        if "certificate has expired" in details:
            return "the worker's certificate has expired"
        if "CERTIFICATE_VERIFY_FAILED" in details or "certificate signature failure" in details:
            return "the worker's certificate is not from an authority in --peer-ca"
        if "WRONG_VERSION_NUMBER" in details:
            return "the worker does not use TLS: start it with --peer-cert, --peer-key and --peer-ca"
        if "failed to connect" in details and ("Socket closed" in details or "reset by peer" in details):
            return self._explain_closed()
        return None

    def _explain_closed(self) -> str:
        if self._credentials is None:
            return "the worker closes the connection: it may require TLS (--peer-ca, --peer-cert, --peer-key)"
        if self._settings.cert is None:
            return "the worker closes the connection: it may require a certificate (--peer-cert, --peer-key)"
        return "the worker closes the connection: it may reject our certificate (--peer-cert); see its log"

    def _warn(self, address: str) -> None:
        if self._tokens is not None and not self._warned and not is_local(address):
            self._warned = True
            log.warning("the peer token is sent to %s unencrypted: enable TLS with --peer-ca", address)


class _TokenSender:
    """Adds the token to calls."""

    def __init__(self, tokens: Callable[[], PeerTokens]) -> None:
        self._tokens = tokens

    async def _send(
        self, continuation: Callable[..., Awaitable[Any]], client_call_details: grpc.aio.ClientCallDetails, request: Any
    ) -> Any:
        metadata = grpc.aio.Metadata(*(client_call_details.metadata or ()), *_metadata(self._tokens()))
        details = grpc.aio.ClientCallDetails(
            method=client_call_details.method,
            timeout=client_call_details.timeout,
            metadata=metadata,
            credentials=client_call_details.credentials,
            wait_for_ready=client_call_details.wait_for_ready,
        )
        return await continuation(details, request)


class _UnaryTokenSender(_TokenSender, grpc.aio.UnaryUnaryClientInterceptor):
    """To control calls and expansions."""

    intercept_unary_unary = _TokenSender._send


class _PutTokenSender(_TokenSender, grpc.aio.StreamUnaryClientInterceptor):
    """To calls that put media."""

    intercept_stream_unary = _TokenSender._send  # type: ignore[assignment]


class _RenderTokenSender(_TokenSender, grpc.aio.UnaryStreamClientInterceptor):
    """To calls that answer in parts."""

    intercept_unary_stream = _TokenSender._send


_TOKEN_SENDERS = (_UnaryTokenSender, _PutTokenSender, _RenderTokenSender)
"""One for each kind of call: gRPC takes an interceptor for one kind alone. Sessions bring their metadata."""


def _metadata(tokens: PeerTokens) -> Metadata:
    return (("authorization", tokens.authorization),)


def _open_credentials(settings: PeerAuthClientSettings) -> Reloading[grpc.ChannelCredentials] | None:
    if settings.ca is None:
        return None
    ca, cert, key = settings.ca, settings.cert, settings.key

    def read() -> grpc.ChannelCredentials:
        own: Certificate | None = None
        if cert is not None and key is not None:
            own = read_certificate(cert, key, ("--peer-cert", "--peer-key"), "client")
        authorities = read_authorities(ca, "--peer-ca")
        return grpc.ssl_channel_credentials(authorities, own.key if own else None, own.chain if own else None)

    return Reloading(_files(ca, cert, key), read)


def _files(*files: Path | None) -> list[Path]:
    return [file for file in files if file is not None]
