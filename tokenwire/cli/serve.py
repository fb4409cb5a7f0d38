"""`tokenwire serve`: a worker and a coordinator in one command, connected by a private socket."""

import os
import shlex
import sys
import tempfile
from pathlib import Path

from tokenwire.cli.click_options import Given, Values, arguments, build, options_command
from tokenwire.cli.coordinator import COORDINATOR_OPTIONS, CoordinatorOptions
from tokenwire.cli.main import SUMMARIES
from tokenwire.cli.model_source import check_model
from tokenwire.cli.supervisor import ChildProcess, supervise_coordinators
from tokenwire.cli.worker import WORKER_OPTIONS, WorkerOptions, check_engine
from tokenwire.coordinator.fleet.failover.settings import FailoverSettings
from tokenwire.coordinator.fleet.liveness import LivenessSettings
from tokenwire.coordinator.settings import CoordinatorSettings
from tokenwire.options import Section, name_of
from tokenwire.process.logs import LogSettings, configure_logging
from tokenwire.process.startup import Startup, StartupLine
from tokenwire.worker.settings import EngineSettings, WorkerSettings

# There is only one worker, so nothing can fail over, and serve stops if it dies.
_SINGLE_WORKER = {
    name_of(FailoverSettings, "attempts"): 0,
    name_of(LivenessSettings, "heartbeat_timeout_s"): 0.0,
    name_of(LivenessSettings, "engine_stall_timeout_s"): 0.0,
}
_LOG_LEVEL = name_of(LogSettings, "level")
_LISTEN = name_of(WorkerSettings, "listen")
_PROGRESS_FD = name_of(WorkerOptions, "progress_fd")
_WORKERS = name_of(CoordinatorSettings, "workers")
_ENGINE_ARGUMENTS = WORKER_OPTIONS[name_of(EngineSettings, "arguments")].option.environment_variable

SERVE_OPTIONS = {
    name: each
    for name, each in {**COORDINATOR_OPTIONS, **WORKER_OPTIONS}.items()
    if not (each.option.hidden or each.option.apart or each.option.section in (Section.PEER_AUTH, Section.FAILOVER))
}


@options_command(
    SUMMARIES["serve"],
    SERVE_OPTIONS,
    epilog="Arguments after -- are vLLM's own engine arguments: tokenwire serve MODEL -- --max-model-len 32768. "
    "Options of `tokenwire worker` and `tokenwire coordinator` can be set by their environment variables.",
)
def command(given: Given) -> None:
    """Run both processes until a signal."""
    values = {_LOG_LEVEL: "warning", **given.values}
    with tempfile.TemporaryDirectory(prefix="tokenwire-") as private:
        # A socket in a directory that only this user can access: no port, no credentials, no conflicts.
        code = _serve(values, given.engine_arguments, f"unix:{Path(private, 'worker.sock')}")
    sys.exit(code)


def _serve(values: Values, engine_arguments: tuple[str, ...], address: str) -> int:
    startup_line = StartupLine(sys.stdout)
    worker_values = {**values, _LISTEN: address}
    coordinator_values = {**values, _WORKERS: (address,), **_SINGLE_WORKER}
    worker = build(WorkerOptions, worker_values)
    coordinator = build(CoordinatorOptions, coordinator_values)
    check_engine(worker.engine.engine, values)
    configure_logging("tokenwire", worker.logs.format, worker.logs.level)
    if worker.engine.model is not None and worker.engine.engine == "vllm":
        check_model(worker.engine.model, engine_arguments or shlex.split(os.environ.get(_ENGINE_ARGUMENTS, "")))
    reasoning_parser = coordinator.settings.parsers.reasoning_parser
    if worker.engine.engine == "vllm" and reasoning_parser:
        # The engine needs it too, because grammars start where reasoning ends.
        engine_arguments = ("--reasoning-parser", reasoning_parser, *engine_arguments)
    # Arguments after -- are passed in the environment, which the worker's own parser does not parse.
    environment = {_ENGINE_ARGUMENTS: shlex.join(engine_arguments)} if engine_arguments else {}
    startup = Startup(coordinator.settings.processes, startup_line)
    first = ChildProcess(
        "worker",
        ["worker", *arguments(WORKER_OPTIONS, {**worker_values, _PROGRESS_FD: startup.fd})],
        inherit=[startup.fd],
        environment=environment,
    )
    second = ["coordinator", *arguments(COORDINATOR_OPTIONS, coordinator_values)]
    return supervise_coordinators(
        second, coordinator.public_port, startup, before=[first], stop_timeout_s=coordinator.stop_timeout_s
    )
