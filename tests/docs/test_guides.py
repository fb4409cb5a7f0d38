"""Pages whose commands start simulated engines run from their first command to their last, as they are shown."""

import re
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.docs.commands import Command, commands
from tests.ports import free_ports
from tests.processes import Process

pytestmark = [pytest.mark.ci, pytest.mark.slow, pytest.mark.timeout(120)]

PAGES = [
    "docs/guides/several-models.md",
    "docs/guides/tenants.md",
    "docs/guides/test-agents.md",
    "docs/guides/tls.md",
    "docs/guides/workers.md",
    "docs/tutorials/crash.md",
]
ELSEWHERE = {"pkill", "python"}
"""Programs in them that other tests run."""
READY = {"worker": "ready: ", "coordinator": r"listening on http", "serve": r"is ready: http"}
"""What the commands that go on print when they can be used."""


class GuidePage:
    """The commands of a page, in a directory of their own, with free ports in the place of those that it names."""

    def __init__(self, name: str, folder: Path) -> None:
        self._folder = folder
        self._commands = [each for each in commands() if each.page == name]
        texts = "".join(each.text for each in self._commands)
        named = sorted({"8000", *re.findall(r"(?:127\.0\.0\.1:|--port )(\d+)", texts)})
        self._ports = dict(zip(named, map(str, free_ports(len(named))), strict=True))

    def run(self) -> None:
        """Start what goes on, run the rest; everything is stopped at the end."""
        with ExitStack() as stack:
            script = ""
            for number, each in enumerate(self._commands):
                if each.program == "tokenwire":
                    stack.enter_context(self._started(each, number))
                    continue
                if each.program in ELSEWHERE:
                    continue
                script += self._here(each.text) + "\n"
                if not _is_open(script):
                    self._shell(script)
                    script = ""

    @contextmanager
    def _started(self, command: Command, number: int) -> Iterator[None]:
        arguments = shlex.split(self._here(command.text), comments=True)[1:]
        if arguments[0] != "worker" and "--port" not in arguments:
            arguments += ["--port", self._ports["8000"]]
        cache = ["--cache-dir", str(self._folder / "cache")]
        process = Process([*arguments, *cache], self._folder / f"{number}.log", directory=self._folder)
        try:
            process.wait_for(READY[arguments[0]], 60)
            yield
        finally:
            process.stop()

    def _here(self, text: str) -> str:
        for named, free in self._ports.items():
            text = re.sub(rf"(127\.0\.0\.1:|--port ){named}\b", rf"\g<1>{free}", text)
        return re.sub(r"^curl( -N)?", "curl --silent --show-error --fail-with-body --retry 20 --retry-all-errors", text)

    def _shell(self, script: str) -> None:
        done = subprocess.run(["sh", "-euc", script], cwd=self._folder, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"


def _is_open(script: str) -> bool:
    """Return whether a loop has begun and not ended."""
    words = script.split()
    return words.count("do") > words.count("done")


@pytest.mark.parametrize("name", PAGES)
def test_the_commands_of_a_page_run_one_after_the_other(name: str, tmp_path: Path) -> None:
    """Servers start, and requests to them succeed."""
    GuidePage(name, tmp_path).run()
