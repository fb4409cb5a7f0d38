"""`tokenwire coordinator`: serves HTTP in this process, or in several that share the port."""

import logging
import socket
import sys
from pathlib import Path

import click

from coordinator.server import CoordinatorServer
from coordinator.settings import CoordinatorSettings
from tokenwire.cli import configure_logging, option
from tokenwire.errors import InvalidRequest
from tokenwire.listening import bind
from tokenwire.paths import default_cache_dir
from tokenwire.supervisor import supervise_coordinators

log = logging.getLogger(__name__)


@click.command()
@option(
    "--worker",
    "workers",
    multiple=True,
    required=True,
    help="A worker's address, HOST:PORT or unix:PATH; repeat for more.",
)
@option("--host", default="127.0.0.1", help="Address to listen on.")
@option("--port", type=click.IntRange(0, 65535), default=8000, help="Port to listen on; 0: any.")
@option("--processes", type=click.IntRange(1, 256), default=1, help="Processes that share the port.")
@option("--chat-template", help="Jinja template, a file or its text, that replaces the model's own.")
@option(
    "--tokenizer",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Directory with tokenizer.json. [default: ask the worker]",
)
@option("--cache-dir", type=click.Path(path_type=Path), help="Where tokenizers of workers are kept.")
@option("--max-body-mb", type=float, default=32.0, help="Largest request body.")
@option("--drain-timeout", type=float, default=30.0, help="Seconds that replies may run on after SIGTERM.")
@option("--stall-timeout", type=float, default=60.0, help="Seconds after which a client that reads nothing is cut off.")
@click.option("--listen-fd", type=int, hidden=True)
@click.option("--ready-fd", type=int, hidden=True)
def command(
    workers: tuple[str, ...],
    host: str,
    port: int,
    processes: int,
    chat_template: str | None,
    tokenizer: Path | None,
    cache_dir: Path | None,
    max_body_mb: float,
    drain_timeout: float,
    stall_timeout: float,
    listen_fd: int | None,
    ready_fd: int | None,
) -> None:
    """Run the text half: OpenAI's HTTP in front, workers behind."""
    configure_logging("coordinator")
    settings = CoordinatorSettings(
        workers=workers,
        chat_template=_read_template(chat_template),
        tokenizer=tokenizer,
        cache_dir=cache_dir or default_cache_dir(),
        max_body_bytes=int(max_body_mb * 1024 * 1024),
        drain_timeout_s=drain_timeout,
        stall_timeout_s=stall_timeout,
    )
    if listen_fd is not None:
        CoordinatorServer(settings).run_on(socket.socket(fileno=listen_fd), ready_fd)
    elif processes == 1:
        CoordinatorServer(settings).run_on(bind(host, port))
    else:
        sys.exit(supervise_coordinators(sys.argv[1:], host, port, processes))


def _read_template(value: str | None) -> str | None:
    """Return a template given as a file or as its text. Raises InvalidRequest."""
    if value is None:
        return None
    if "{" in value:
        return value
    try:
        return Path(value).read_text()
    except OSError as error:
        raise InvalidRequest(f"--chat-template: cannot read {value}: {error.strerror}") from error
