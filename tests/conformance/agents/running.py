"""Runs agents as processes with a home of their own."""

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress

from tests.conformance.agents.agent import Place


class AgentProcess:
    """A session of an agent under way, with all its processes."""

    def __init__(self, place: Place, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._output = place.home / "output.txt"
        own = {"HOME": str(place.home), "PATH": os.environ["PATH"], "LANG": "C.UTF-8", **environment}
        with self._output.open("wb") as file:
            self._process = subprocess.Popen(
                command,
                cwd=place.work,
                env=own,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def output(self) -> str:
        """What it printed so far."""
        return self._output.read_text(errors="replace")

    def wait(self, timeout_s: float) -> int | None:
        """Wait until it ends; return its exit code, None if it does not."""
        with suppress(subprocess.TimeoutExpired):
            return self._process.wait(timeout_s)
        return None

    def interrupt(self) -> None:
        """Interrupt it, as a person does with Ctrl-C."""
        os.killpg(self._process.pid, signal.SIGINT)

    def stop(self) -> None:
        """End all of its processes."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
