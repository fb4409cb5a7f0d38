"""The public port: bound early, so that a port in use is one clear line; and announced once it answers."""

import socket


def bind(host: str, port: int, *, reuse_port: bool = False) -> socket.socket:
    """Bind a TCP address. Raises OSError naming it."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if reuse_port:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        bound.bind((host, port))
        # SO_REUSEADDR lets two sockets bind one address; only one of them can listen.
        bound.listen(2048)
    except OSError as error:
        bound.close()
        reason = error.strerror or str(error)
        raise OSError(error.errno, f"cannot listen on {host}:{port}: {reason} (choose another with --port)") from error
    return bound


def bind_shared(host: str, port: int, count: int) -> list[socket.socket]:
    """Bind one address several times, so that the kernel spreads connections evenly over processes."""
    if count == 1:
        return [bind(host, port)]
    # A port that others share already would let us in silently: see first that it is free.
    with bind(host, port) as probe:
        port = probe.getsockname()[1]
    return [bind(host, port, reuse_port=True) for _ in range(count)]


def announce_ready(host: str, port: int, scheme: str = "http") -> None:
    """Print where the service is, with a request to paste."""
    shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)  # noqa: S104
    trust = "" if scheme == "http" else " --cacert CA.pem"
    print(
        f"""
tokenwire is ready: {scheme}://{shown}:{port}

  curl{trust} {scheme}://{shown}:{port}/v1/chat/completions -H 'Content-Type: application/json' \\
    -d '{{"messages": [{{"role": "user", "content": "Hello!"}}], "stream": true}}'
""",
        flush=True,
    )
