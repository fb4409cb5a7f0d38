"""`tokenwire worker`: starts the configured engine and serves it."""

import asyncio
import logging
import os
import shlex
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tokenwire.cli.click_options import Given, Values, build, options_command
from tokenwire.cli.main import SUMMARIES
from tokenwire.cli.model_source import check_model
from tokenwire.errors import EngineFailed, InvalidRequest
from tokenwire.options import Option, Section, declared, option
from tokenwire.process.gc_tuning import freeze_heap, gc_disabled
from tokenwire.process.logs import LogSettings, configure_logging, is_quiet
from tokenwire.process.shared_options import default_cache_dir
from tokenwire.process.startup import reporter
from tokenwire.protocol.model_revision import ModelRevision
from tokenwire.worker.engine.interface import Engine
from tokenwire.worker.settings import EngineSettings, WorkerSettings
from tokenwire.worker.simulated_engine.settings import SimulationSettings

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """All options of the command."""

    engine: EngineSettings = field(default_factory=EngineSettings)
    settings: WorkerSettings = field(default_factory=WorkerSettings)
    simulation: SimulationSettings = field(default_factory=SimulationSettings)
    logs: LogSettings = field(default_factory=LogSettings)
    progress_fd: int | None = option(None, Option("--progress-fd", hidden=True))
    """The pipe for startup progress."""


WORKER_OPTIONS = declared(WorkerOptions)


@options_command(
    SUMMARIES["worker"],
    WORKER_OPTIONS,
    epilog="Arguments after -- are vLLM's own engine arguments: "
    "tokenwire worker MODEL --listen 0.0.0.0:50051 -- --tensor-parallel-size 4 --max-model-len 32768",
)
def command(given: Given) -> None:
    """Run the worker until a signal."""
    import uvloop

    options = build(WorkerOptions, given.values)
    check_engine(options.engine.engine, given.values)
    configure_logging("worker", options.logs.format, options.logs.level)
    arguments = [*shlex.split(options.engine.arguments), *given.engine_arguments]
    if options.engine.engine == "sim":
        if arguments:
            raise InvalidRequest(f"The simulated engine takes no engine arguments: {shlex.join(arguments)}")
        built = _simulated(options.engine.model, options.simulation)
    else:
        if is_quiet(options.logs.level):
            arguments = ["--no-use-tqdm-on-load", *arguments]
        built = _vllm(options.engine, arguments, reporter(options.progress_fd))
    code = uvloop.run(_run(built, options.settings))
    # Threads of engines would block the exit; everything else has ended.
    logging.shutdown()
    os._exit(code)


def check_engine(engine: str, values: Values) -> None:
    """Raise InvalidRequest if an option of the simulated engine is given to another one."""
    simulated = [name for name, each in WORKER_OPTIONS.items() if each.option.section is Section.SIMULATION]
    given = [name for name in simulated if name in values]
    if given and engine != "sim":
        raise InvalidRequest(f"Only the simulated engine, --engine sim, takes {' '.join(given)}")


async def _run(engine: Engine, settings: WorkerSettings) -> int:
    from tokenwire.worker.server import WorkerServer

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
            starting.add_done_callback(_retrieve_error)
            log.info("stopped while starting")
            return 0
        await starting
        model = server.welcome().model
        log.info("ready: %s (revision %s) on %s", ", ".join(model.names), ModelRevision.of(model), server.address)
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


def _retrieve_error(starting: asyncio.Task[None]) -> None:
    """Retrieve the error of an interrupted startup, so that asyncio does not log it."""
    if not starting.cancelled():
        starting.exception()


def _on_signal(shutdown: asyncio.Event) -> None:
    if shutdown.is_set():
        log.warning("second signal: exiting immediately")
        os._exit(1)
    shutdown.set()


def _vllm(settings: EngineSettings, arguments: Sequence[str], report: Callable[[str], None]) -> Engine:
    model, names = settings.model, settings.served_model_names
    if model is not None:
        check_model(model, arguments)
    from tokenwire.worker.vllm_engine.vllm_version import check_vllm, installed_vllm

    check_vllm(installed_vllm(), settings.allow_untested_vllm)
    report("loading vLLM")
    try:
        with gc_disabled():
            from tokenwire.worker.vllm_engine.engine import VllmEngine
    except ImportError as error:
        raise EngineFailed(
            f"The vLLM engine cannot be loaded ({error}). Install it with `pip install 'tokenwire[worker]'` where "
            "there are GPUs, by `make serve` in a checkout where there are none, or try `--engine sim`."
        ) from error
    if model is None:
        from tokenwire.worker.vllm_engine import embedded_model as embedded

        def report_progress(progress: str) -> None:
            log.info(progress)
            report(progress)

        if settings.demo == "embeddings":
            model, names = str(embedded.find_embedding_model()), names or (embedded.EMBEDDING_MODEL_NAME,)
        else:
            cache = settings.cache_dir or default_cache_dir()
            model = str(embedded.prepare_embedded_model(cache, report_progress))
            names = names or (embedded.EMBEDDED_MODEL_NAME,)
        arguments = [*embedded.EMBEDDED_MODEL_ENGINE_ARGS, *arguments]
        for name, value in embedded.EMBEDDED_MODEL_ENVIRONMENT.items():
            os.environ.setdefault(name, value)
    log.info("starting vLLM with %s; a large model takes minutes", model)
    report(f"loading {names[0] if names else model}")
    kv_events, warm_up, media = settings.kv_events, settings.warm_up, settings.media
    return VllmEngine(model, [*arguments], [*names], kv_events=kv_events, warm_up=warm_up, media=media, report=report)


def _simulated(model: str | None, settings: SimulationSettings) -> Engine:
    from tokenwire.worker.simulated_engine.engine import SimulatedEngine

    if model is not None and not Path(model).is_dir():
        raise InvalidRequest(f"The simulated engine needs a local directory with tokenizer files, got {model!r}")
    return SimulatedEngine(replace(settings, model_dir=Path(model) if model else None))
