"""gRPC options of both halves: pings, messages and connections."""

import pytest

from tokenwire.peer_auth.grpc_options import CLIENT, SERVER, is_local


@pytest.mark.parametrize("address", ["unix:/run/worker", "127.0.0.1:50051", "127.8.8.8:1", "localhost:1", "[::1]:1"])
def test_loopback_addresses_and_sockets_are_local(address: str) -> None:
    """No warning is due for what only this machine can reach."""
    assert is_local(address)


@pytest.mark.parametrize("address", ["0.0.0.0:1", "[::]:1", "10.0.3.7:1", "worker-127.example:1", "[fe80::1]:1"])
def test_all_other_addresses_are_not_local(address: str) -> None:
    """Also those of every interface, and names."""
    assert not is_local(address)


def test_servers_accept_the_pings_that_clients_send() -> None:
    """A server that did not would close the connection with every session on it."""
    client, server = dict(CLIENT), dict(SERVER)

    assert int(server["grpc.http2.min_ping_interval_without_data_ms"]) <= int(client["grpc.keepalive_time_ms"])
    assert server["grpc.http2.max_ping_strikes"] == 0
