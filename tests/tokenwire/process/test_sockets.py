"""Binding and announcing the public port."""

import socket

import pytest

from tokenwire.process.sockets import PublicPort, bind, bind_shared


def test_a_taken_port_is_named() -> None:
    """The error names the address, and what to do."""
    with bind("127.0.0.1", 0) as first:
        port = first.getsockname()[1]

        with pytest.raises(OSError, match=f"127.0.0.1:{port}.*--port"):
            bind("127.0.0.1", port)


def test_shared_sockets_have_one_port() -> None:
    """Several processes can listen on the same address."""
    sockets = bind_shared("127.0.0.1", 0, 3)
    try:
        assert len({bound.getsockname() for bound in sockets}) == 1
    finally:
        for bound in sockets:
            bound.close()


def test_a_port_shared_by_another_service_is_taken() -> None:
    """Only processes of one service share it: a second service gets an error."""
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        other.bind(("127.0.0.1", 0))
        other.listen()

        with pytest.raises(OSError, match="cannot listen"):
            bind_shared("127.0.0.1", other.getsockname()[1], 2)


@pytest.mark.parametrize(
    ("host", "shown"), [("0.0.0.0", "127.0.0.1"), ("::", "[::1]"), ("::1", "[::1]"), ("10.0.0.1", "10.0.0.1")]
)
def test_the_announcement_can_be_pasted(host: str, shown: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The curl command has an address that works."""
    PublicPort(host, 80).announce()

    assert f"curl http://{shown}:80/v1/chat/completions" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("task", "path"), [("embed", "/v1/embeddings"), ("score", "/score"), ("token_embed", "/pooling")]
)
def test_the_example_is_of_the_models_task(task: str, path: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A model that pools has no chats."""
    PublicPort("127.0.0.1", 80).announce(task)

    shown = capsys.readouterr().out
    assert f"curl http://127.0.0.1:80{path} " in shown
    assert "chat" not in shown
