"""`tokenwire coordinator`: serves HTTP in this process, or in several that share a port."""

import logging
import socket
import sys
from dataclasses import dataclass, field, replace

from tokenwire.cli.click_options import Given, build, options_command
from tokenwire.cli.main import SUMMARIES
from tokenwire.cli.supervisor import supervise_coordinators
from tokenwire.coordinator.settings import CoordinatorSettings
from tokenwire.options import Option, declared, option
from tokenwire.process.gc_tuning import gc_disabled
from tokenwire.process.logs import LogSettings, configure_logging
from tokenwire.process.one_heap import use_one_heap
from tokenwire.process.shared_options import default_cache_dir
from tokenwire.process.sockets import PublicPort, bind
from tokenwire.process.startup import Startup

log = logging.getLogger(__name__)

_STOP_MARGIN_S = 15.0


@dataclass(frozen=True, slots=True)
class CoordinatorOptions:
    """All options of the command."""

    settings: CoordinatorSettings
    logs: LogSettings = field(default_factory=LogSettings)
    listen_fd: int | None = option(None, Option("--listen-fd", hidden=True))
    """A bound socket inherited from the parent process."""
    ready_fd: int | None = option(None, Option("--ready-fd", hidden=True))
    """The pipe for the readiness signal."""

    @property
    def public_port(self) -> PublicPort:
        """The address for clients."""
        settings = self.settings
        return PublicPort(settings.host, settings.port, settings.https.scheme, settings.status_page)

    @property
    def stop_timeout_s(self) -> float:
        """Maximum time to stop, including the drain."""
        return self.settings.drain_delay_s + self.settings.drain_timeout_s + _STOP_MARGIN_S


COORDINATOR_OPTIONS = declared(CoordinatorOptions)


@options_command(SUMMARIES["coordinator"], COORDINATOR_OPTIONS)
def command(given: Given) -> None:
    """Run the coordinator, or as many processes of it as asked for."""
    options = build(CoordinatorOptions, given.values)
    configure_logging("coordinator", options.logs.format, options.logs.level)
    settings = replace(options.settings, cache_dir=options.settings.cache_dir or default_cache_dir())
    _import_parsers(settings)
    if options.listen_fd is None and settings.processes > 1:
        startup = Startup(settings.processes)
        sys.exit(
            supervise_coordinators(sys.argv[1:], options.public_port, startup, stop_timeout_s=options.stop_timeout_s)
        )
    use_one_heap()
    # Imported late: help is faster, and a supervising process stays small.
    with gc_disabled():
        from tokenwire.coordinator.server import CoordinatorServer

    if options.listen_fd is not None:
        CoordinatorServer(settings, socket.socket(fileno=options.listen_fd), options.ready_fd).run_bound()
    else:
        CoordinatorServer(settings, bind(settings.host, settings.port)).run_bound()


def _import_parsers(settings: CoordinatorSettings) -> None:
    if settings.parsers.parses:
        from tokenwire.coordinator.parsing.light_imports import import_lightly
        from tokenwire.coordinator.parsing.loader import import_parsers

        log.info("loading parsers; this takes some seconds")
        with gc_disabled():
            if not settings.parsers.loads_whole_vllm:
                import_lightly()
            import_parsers(settings.parsers)
