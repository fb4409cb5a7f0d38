"""`tokenwire worker`: builds the engine that the options ask for and serves it."""

import asyncio
import json
import logging
import os
import shlex
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import uvloop

from tokenwire.cli.main import SectionedCommand, option
from tokenwire.cli.model_source import check_model
from tokenwire.cli.observability_options import LOG_FORMAT, LOG_LEVEL
from tokenwire.cli.simulation_options import simulation_options
from tokenwire.errors import EngineFailed, InvalidRequest
from tokenwire.gc_tuning import freeze_heap
from tokenwire.logs import LogFormat, LogLevel, configure_logging, is_quiet
from tokenwire.paths import default_cache_dir
from tokenwire.peer_auth.settings import link_options, link_settings
from tokenwire.startup import reporter
from tokenwire.worker.engine import Engine
from tokenwire.worker.server import WorkerServer
from tokenwire.worker.settings import WorkerSettings

log = logging.getLogger(__name__)


@click.command(
    cls=SectionedCommand,
    epilog="What follows -- are vLLM's own engine arguments: "
    "tokenwire worker MODEL --listen 0.0.0.0:50051 -- --tensor-parallel-size 4 --max-model-len 32768",
)
@click.argument("model", required=False, envvar="TOKENWIRE_MODEL")
@option("--listen", default="127.0.0.1:50051", help="Where coordinators connect: HOST:PORT or unix:PATH.")
@option(
    "--engine", type=click.Choice(["vllm", "sim"]), default="vllm", help="The real engine, or one that makes up tokens."
)
@option("--served-model-name", multiple=True, help="Name(s) that requests may use. [default: MODEL]")
@option("--drain-timeout", type=float, default=30.0, help="Seconds that replies may run on after SIGTERM.")
@option(
    "--weights-root",
    "weights_roots",
    multiple=True,
    type=click.Path(exists=True, file_okay=False, resolve_path=True, path_type=Path),
    help="Directory that new weights and adapters may be read from; repeat for more. [default: any]",
)
@option(
    "--health-listen", help="One more HOST:PORT, with health only and for anybody: for probes without certificates."
)
@option("--log-format", **LOG_FORMAT)
@option("--log-level", **LOG_LEVEL)
@option("--metrics-listen", help="HOST:PORT on which Prometheus may ask for /metrics, over plain HTTP.")
@link_options
@option(
    "--warm-up/--no-warm-up",
    default=True,
    help="Run requests of each kind before the first one comes, so that nobody waits for kernels to be compiled.",
)
@option("--kv-events", is_flag=True, help="Tell coordinators what the prefix cache holds, so that prompts find it.")
@option("--cache-dir", type=click.Path(path_type=Path), help="Where the embedded model is prepared.")
@option("--engine-args", default="", help="Engine arguments, for where a command line cannot carry them after --.")
@simulation_options
@click.option("--progress-fd", type=int, hidden=True)
@click.pass_obj
def command(
    engine_arguments: list[str],
    /,
    model: str | None,
    listen: str,
    engine: str,
    served_model_name: tuple[str, ...],
    drain_timeout: float,
    weights_roots: tuple[Path, ...],
    health_listen: str | None,
    log_format: LogFormat,
    log_level: LogLevel | None,
    metrics_listen: str | None,
    warm_up: bool,
    kv_events: bool,
    cache_dir: Path | None,
    engine_args: str,
    progress_fd: int | None,
    **others: Any,
) -> None:
    """Run the token half: one engine, its tokens behind a gRPC port.

    MODEL is a directory or a hub id. Without it the small embedded model is served; `make serve` installs it.
    """
    configure_logging("worker", log_format, log_level)
    settings = WorkerSettings(
        listen, drain_timeout, weights_roots, link_settings(others), health_listen, metrics_listen
    )
    cache = cache_dir or default_cache_dir()
    arguments = [*shlex.split(engine_args), *engine_arguments]
    if engine == "sim":
        built = _simulated(model, served_model_name, kv_events, others)
        if arguments:
            raise InvalidRequest(f"The simulated engine takes no engine arguments: {shlex.join(arguments)}")
    else:
        if is_quiet(log_level):
            arguments = ["--no-use-tqdm-on-load", *arguments]
        built = _vllm(
            model, served_model_name, cache, arguments, reporter(progress_fd), kv_events=kv_events, warm_up=warm_up
        )
    code = uvloop.run(_run(built, settings))
    # Engines leave threads behind that would hold the exit up; everything that must end has ended.
    logging.shutdown()
    os._exit(code)


async def _run(engine: Engine, settings: WorkerSettings) -> int:
    shutdown = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _on_signal, shutdown)
    server = WorkerServer(engine, settings)
    try:
        starting = asyncio.create_task(server.startup())
        stopping = asyncio.create_task(shutdown.wait())
        await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not starting.done():
            starting.add_done_callback(_take_note)
            log.info("stopped while starting")
            return 0
        await starting
        log.info("ready: %s on %s", ", ".join(server.welcome().model.names), server.address)
        freeze_heap()
        await server.serve(shutdown)
        return 0
    except (EngineFailed, InvalidRequest) as error:
        log.error("%s", error.message)
        return 1
    except OSError as error:
        log.error("%s", error)
        return 1
    finally:
        await server.stop()
        log.info("stopped")


def _take_note(broken_off: asyncio.Task[None]) -> None:
    """A start that is broken off fails, as it should: nobody needs its traceback."""
    if not broken_off.cancelled():
        broken_off.exception()


def _on_signal(shutdown: asyncio.Event) -> None:
    if shutdown.is_set():
        log.warning("second signal: stopping at once")
        os._exit(1)
    shutdown.set()


def _vllm(
    model: str | None,
    names: tuple[str, ...],
    cache: Path,
    arguments: list[str],
    report: Callable[[str], None],
    **options: bool,
) -> Engine:
    if model is not None:
        check_model(model, arguments)
    report("loading vLLM")
    try:
        from tokenwire.worker.vllm_engine.engine import VllmEngine
    except ImportError as error:
        raise EngineFailed(
            f"The vLLM engine cannot be loaded ({error}). Install it with `pip install 'tokenwire[worker]'` where "
            "there are GPUs, by `make serve` in a checkout where there are none, or try `--engine sim`."
        ) from error
    if model is None:
        from tokenwire.worker.embedded_model import (
            EMBEDDED_MODEL_ENGINE_ARGS,
            EMBEDDED_MODEL_NAME,
            prepare_embedded_model,
        )

        def tell(progress: str) -> None:
            log.info(progress)
            report(progress)

        model, names = str(prepare_embedded_model(cache, tell)), names or (EMBEDDED_MODEL_NAME,)
        arguments = [*EMBEDDED_MODEL_ENGINE_ARGS, *arguments]
    log.info("starting vLLM with %s; a large model takes minutes", model)
    report(f"loading {names[0] if names else model}")
    return VllmEngine(model, arguments, list(names), report=report, **options)


def _simulated(model: str | None, names: tuple[str, ...], kv_events: bool, options: dict[str, object]) -> Engine:
    from tokenwire.worker.simulated_engine.engine import SimulatedEngine
    from tokenwire.worker.simulated_engine.faults import FaultPlan
    from tokenwire.worker.simulated_engine.settings import SimulationSettings

    if model is not None and not Path(model).is_dir():
        raise InvalidRequest(f"The simulated engine needs a local directory with tokenizer files, got {model!r}")
    try:
        script = options["sim_script"]
        settings = SimulationSettings(
            model_dir=Path(model) if model else None,
            served_model_names=names,
            max_model_len=options["sim_max_model_len"],  # type: ignore[arg-type]
            seed=options["sim_seed"],  # type: ignore[arg-type]
            step_ms=options["sim_step_ms"],  # type: ignore[arg-type]
            prefill_tokens_per_s=options["sim_prefill_rate"],  # type: ignore[arg-type]
            max_num_seqs=options["sim_max_num_seqs"],  # type: ignore[arg-type]
            max_queue=options["sim_max_queue"],  # type: ignore[arg-type]
            kv_tokens=options["sim_kv_tokens"],  # type: ignore[arg-type]
            script=tuple(json.loads(Path(str(script)).read_text())) if script else None,
            kv_events=kv_events,
            eos_rate=options["sim_eos_rate"],  # type: ignore[arg-type]
            generators=options["sim_seeds"] == "generator",
            faults=FaultPlan.parse(options["sim_fault"]),  # type: ignore[arg-type]
        )
    except (ValueError, TypeError) as error:
        raise InvalidRequest(f"simulated engine: {error}") from error
    return SimulatedEngine(settings)
