"""Bar: steps get the servers that started, whatever became of the others."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

import pytest

from gpu.servers import RunningServer, ServerProcess, started_together


class _KilledProcess:
    """A process that notes its end."""

    def __init__(self) -> None:
        self.killed = False

    def kill(self) -> None:
        self.killed = True


@contextmanager
def _starting(process: _KilledProcess) -> Iterator[RunningServer]:
    yield RunningServer("127.0.0.1:1", cast(ServerProcess, process), 0.1)


@contextmanager
def _failing() -> Iterator[RunningServer]:
    raise AssertionError("no GPU")
    yield


def test_a_server_that_does_not_start_stops_no_other() -> None:
    """Its error is raised where it is asked for; the others are ended at last."""
    process = _KilledProcess()
    with started_together({"bad": _failing, "good": lambda: _starting(process)}, at_once=2) as servers:
        assert servers["good"].address == "127.0.0.1:1"
        with pytest.raises(RuntimeError, match="bad did not start: no GPU"):
            servers["bad"]
        assert not process.killed
    assert process.killed
