"""gRPC channel and server options of both halves."""

import json
from collections.abc import Sequence

import grpc

ChannelOptions = Sequence[tuple[str, int | str]]

_UNLIMITED = -1
_MOST_RESPONSE_BYTES = 256 * 2**20
"""Of a control call."""
MOST_MEDIA_BYTES = 4 * 2**20
"""Of a message of a worker's answer to a call for media: the ids of a prompt of more than a million tokens."""
MOST_TENSOR_BYTES = 128 * 2**20
"""Of the tensors of a rendered request. As JSON they take a third more."""
FEATURES_PART_BYTES = 2**20
"""Of this JSON in a message; the last one may have less."""
MOST_TOKENIZER_BYTES = 40 * 2**20
"""Of the files of a tokenizer. The largest public ones have 35 MB."""
MOST_EVENT_BYTES = 16 * 2**20
"""Of a worker's event in a session. Reading one of this size takes a coordinator a fifth of a second."""

COMMON: ChannelOptions = (
    # Prompts and tokenizer files are large.
    ("grpc.max_send_message_length", _UNLIMITED),
    # A session may be idle for long while its requests wait; pings keep it open and detect a dead peer.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
)

SERVER: ChannelOptions = (
    *COMMON,
    ("grpc.max_receive_message_length", _UNLIMITED),
    # Without these a server answers frequent pings with GOAWAY too_many_pings, which kills every stream.
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    # Two workers on one port would share its connections.
    ("grpc.so_reuseport", 0),
)

CLIENT: ChannelOptions = (
    *COMMON,
    ("grpc.max_receive_message_length", _MOST_RESPONSE_BYTES),
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    # Connections to workers must not use a proxy from the environment.
    ("grpc.enable_http_proxy", 0),
    # A worker's frames are small and many: bandwidth probing would answer each with a ping. Instead the window is
    # large from the start.
    ("grpc.http2.bdp_probe", 0),
    ("grpc.http2.lookahead_bytes", 4 * 1024 * 1024),
    # Each session has a connection of its own.
    ("grpc.use_local_subchannel_pool", 1),
)


def client_options(
    most_event_bytes: int = MOST_EVENT_BYTES, most_tokenizer_bytes: int = MOST_TOKENIZER_BYTES
) -> ChannelOptions:
    """Return the options of a channel to a worker, whose answers of each kind have at most so many bytes."""
    limits = [
        ({"service": "tokenwire.v1.Inference"}, most_event_bytes),
        ({"service": "tokenwire.v1.Media"}, MOST_MEDIA_BYTES),
        ({"service": "tokenwire.v1.Control", "method": "GetTokenizer"}, most_tokenizer_bytes),
    ]
    config = {"methodConfig": [{"name": [name], "maxResponseMessageBytes": most} for name, most in limits]}
    return (*CLIENT, ("grpc.service_config", json.dumps(config)))


def open_channel(address: str) -> grpc.aio.Channel:
    """Open a channel to a worker at `HOST:PORT` or `unix:PATH`."""
    return grpc.aio.insecure_channel(address, options=CLIENT)


def is_local(address: str) -> bool:
    """Return whether only this machine can reach the address."""
    if address.startswith("unix:"):
        return True
    host = address.rpartition(":")[0].strip("[]")
    return host in ("localhost", "::1") or host.startswith("127.")
