"""The public port: bound early, so that a port in use is reported at once, and announced once it serves."""

import shlex
import shutil
import socket
import sys
from dataclasses import dataclass
from pathlib import Path


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
    # Binding a port that others already share would succeed silently, so check first that it is free.
    with bind(host, port) as probe:
        port = probe.getsockname()[1]
    return [bind(host, port, reuse_port=True) for _ in range(count)]


_TEXT = '{"input": "Hello!"}'
_EXAMPLES = {
    "generate": ("/v1/chat/completions", '{"messages": [{"role": "user", "content": "Hello!"}], "stream": true}'),
    "embed": ("/v1/embeddings", _TEXT),
    "classify": ("/classify", _TEXT),
    "score": ("/score", '{"text_1": "Hello!", "text_2": ["Good day.", "Rain."]}'),
}
"""A request by the task of a model."""
_POOLED = "/pooling", _TEXT


@dataclass(frozen=True, slots=True)
class PublicPort:
    """The public address of a service."""

    host: str
    port: int
    scheme: str = "http"
    status_page: bool = True

    @property
    def url(self) -> str:
        """The URL for clients on this machine."""
        shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(self.host)  # noqa: S104
        return f"{self.scheme}://{shown or (f'[{self.host}]' if ':' in self.host else self.host)}:{self.port}"

    def announce(self, task: str = "generate") -> None:
        """Print the URL, and an example request that a model with this task answers; of one that generates, also a
        command to chat with it.
        """
        trust = "" if self.scheme == "http" else " --cacert CA.pem"
        page = "  (the status page)" if self.status_page else ""
        elsewhere = "" if self.url == "http://127.0.0.1:8000" else f" --url {self.url}"
        path, body = _EXAMPLES.get(task, _POOLED)
        chat = f"\n  {_program()} chat{elsewhere}\n" if task == "generate" else ""
        print(
            f"""
tokenwire is ready: {self.url}{page}

  curl{trust} {self.url}{path} -H 'Content-Type: application/json' \\
    -d '{body}'
{chat}""",
            flush=True,
        )


def _program() -> str:
    """Return this command for pasting: by its name only if every shell finds it."""
    called = Path(sys.argv[0])
    if called.name == "__main__.py":
        return f"{shlex.quote(sys.executable)} -m tokenwire"
    # `uvx`, `uv run` and activation put an environment's folder on the PATH of this process, not of other shells.
    own = sys.prefix != sys.base_prefix and called.absolute().parent == Path(sys.prefix, "bin")
    on_path = not own and shutil.which(called.name) == str(called.absolute())
    return called.name if on_path else shlex.quote(str(called))
