"""`tokenwire serve`: a worker and a coordinator in one command, joined by a private socket."""

import os
import shlex
import sys
import tempfile
from pathlib import Path
from typing import Any

import click

from tokenwire.cli.api_options import api_arguments, api_options
from tokenwire.cli.http_options import front_arguments, front_options
from tokenwire.cli.main import SectionedCommand, option
from tokenwire.cli.model_source import check_model
from tokenwire.cli.supervisor import Part, supervise_coordinators
from tokenwire.logs import configure_logging
from tokenwire.sockets import PublicPort
from tokenwire.startup import Startup, StartupLine


@click.command(
    cls=SectionedCommand,
    epilog="What follows -- are vLLM's own engine arguments: tokenwire serve MODEL -- --max-model-len 32768. "
    "Options of `tokenwire worker` and `tokenwire coordinator` can be set by their environment variables.",
)
@click.argument("model", required=False, envvar="TOKENWIRE_MODEL")
@option("--host", default="127.0.0.1", help="Address to listen on.")
@option("--port", type=click.IntRange(0, 65535), default=8000, help="Port to listen on; 0: any.")
@option("--processes", type=click.IntRange(1, 256), default=1, help="Coordinator processes that share the port.")
@option(
    "--engine", type=click.Choice(["vllm", "sim"]), default="vllm", help="The real engine, or one that makes up tokens."
)
@option("--served-model-name", multiple=True, help="Name(s) that requests may use. [default: MODEL]")
@option(
    "--weights-root",
    "weights_roots",
    multiple=True,
    type=click.Path(exists=True, file_okay=False, resolve_path=True, path_type=Path),
    help="Directory that new weights and adapters may be read from; repeat for more. [default: any]",
)
@option("--cache-dir", type=click.Path(path_type=Path), help="Where models and tokenizers are kept.")
@front_options
@api_options
@click.pass_obj
def command(
    engine_arguments: list[str],
    /,
    model: str | None,
    host: str,
    port: int,
    processes: int,
    engine: str,
    served_model_name: tuple[str, ...],
    weights_roots: tuple[Path, ...],
    cache_dir: Path | None,
    **options: Any,
) -> None:
    """Serve a model: a worker and a coordinator in one command.

    MODEL is a directory or a hub id. Without it a small embedded model is served on the CPU; `make serve` installs it.
    """
    options["log_level"] = options["log_level"] or "warning"
    configure_logging("tokenwire", options["log_format"], options["log_level"])
    if model is not None and engine == "vllm":
        check_model(model, engine_arguments or shlex.split(os.environ.get("TOKENWIRE_ENGINE_ARGS", "")))
    cache = ["--cache-dir", str(cache_dir)] if cache_dir else []
    with tempfile.TemporaryDirectory(prefix="tokenwire-") as private:
        # A socket in a directory that only this user can enter: no port, no credentials, no clash with a neighbour.
        address = f"unix:{private}/worker.sock"
        worker = ["worker", *([model] if model else []), "--listen", address, "--engine", engine, *cache]
        worker += ["--log-format", options["log_format"], "--log-level", options["log_level"]]
        for name in served_model_name:
            worker += ["--served-model-name", name]
        for root in weights_roots:
            worker += ["--weights-root", str(root)]
        # There is one worker, and everything ends with it: nothing goes on elsewhere.
        alone = ["--failover-attempts", "0", "--heartbeat-timeout", "0", "--engine-stall-timeout", "0"]
        coordinator = ["coordinator", "--worker", address, *cache, *alone]
        coordinator += [*front_arguments(options), *api_arguments(options)]
        if engine == "vllm" and options["reasoning_parser"]:
            # The engine has to know too: grammars begin where reasoning ends.
            engine_arguments = ["--reasoning-parser", options["reasoning_parser"], *engine_arguments]
        front = PublicPort(host, port, "https" if options["ssl_certfile"] else "http", not options["no_status_page"])
        # Arguments given after -- go by the environment: the worker's own parser never sees them.
        environment = {"TOKENWIRE_ENGINE_ARGS": shlex.join(engine_arguments)} if engine_arguments else {}
        startup = Startup(processes, StartupLine(sys.stdout))
        worker += ["--progress-fd", str(startup.fd)]
        first = [Part("worker", worker, inherit=[startup.fd], environment=environment)]
        code = supervise_coordinators(coordinator, front, startup, before=first)
    sys.exit(code)
