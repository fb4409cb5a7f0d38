"""The `tokenwire` command: its help, its errors, and what it imports."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from tokenwire import __version__
from tokenwire.cli.main import group
from tokenwire.options import Section


def tokenwire(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run the command to its end in a directory."""
    command = [sys.executable, "-X", "importtime", "-m", "tokenwire", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)


def imported(done: "subprocess.CompletedProcess[str]") -> set[str]:
    """Return the modules that a run imported."""
    lines = (line for line in done.stderr.splitlines() if line.startswith("import time:"))
    return {line.split("|")[-1].strip() for line in lines}


def errors(done: "subprocess.CompletedProcess[str]") -> list[str]:
    """Return the lines that users see as errors."""
    return [line for line in done.stderr.splitlines() if not line.startswith("import time:")]


def test_help_lists_the_commands_without_importing_them(tmp_path: Path) -> None:
    """So that it is fast, and works where a half is not installed."""
    done = tokenwire(tmp_path, "--help")

    assert done.returncode == 0
    assert [line.split()[0] for line in done.stdout.partition("Commands:")[2].splitlines() if line[2:3].strip()][
        :4
    ] == [
        "serve",
        "chat",
        "coordinator",
        "worker",
    ]
    assert "tokenwire.cli.main" in imported(done)
    assert not {f"tokenwire.cli.{name}" for name in ("serve", "chat", "coordinator", "worker")} & imported(done)


def test_a_coordinator_does_not_import_the_worker(tmp_path: Path) -> None:
    """Only the subcommand that runs is imported."""
    modules = imported(tokenwire(tmp_path, "coordinator", "--help"))

    assert "tokenwire.coordinator.settings" in modules
    assert not [name for name in modules if name.startswith("tokenwire.worker")]


@pytest.mark.parametrize("command", ["serve", "coordinator", "worker", "chat"])
def test_help_of_a_command_has_its_options_under_headings(command: str) -> None:
    """In the order of the sections, each of them once."""
    result = CliRunner().invoke(group, [command, "--help"])

    headings = [line.removesuffix(":") for line in result.output.splitlines() if line.endswith(":") and line[0] != " "]
    assert result.exit_code == 0
    assert headings == [section.value for section in Section if section.value in headings]
    assert Section.GENERAL.value in headings


def test_an_unknown_command_is_named() -> None:
    """Nothing is imported for it."""
    result = CliRunner().invoke(group, ["server"])

    assert result.exit_code == 2
    assert "No such command 'server'" in result.output


def test_the_version_is_the_packages() -> None:
    """As in every log and answer."""
    assert CliRunner().invoke(group, ["--version"]).output == f"tokenwire, version {__version__}\n"


def test_errors_that_users_can_fix_are_one_line(tmp_path: Path) -> None:
    """Of tokenwire and of the operating system, without a traceback."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        rejected = [
            tokenwire(tmp_path, "coordinator", "--worker", "127.0.0.1:1", "--host", "127.0.0.1", "--port", port),
            tokenwire(tmp_path, "coordinator", "--worker", "127.0.0.1:1", "--peer-cert", __file__),
        ]

    assert [done.returncode for done in rejected] == [1, 1]
    assert [len(errors(done)) for done in rejected] == [1, 1]
    assert all(errors(done)[0].startswith("tokenwire: ") for done in rejected)


def test_arguments_after_two_dashes_reach_the_engine(tmp_path: Path) -> None:
    """They are not parsed as options of the command, not even those that it has."""
    done = tokenwire(tmp_path, "worker", "--engine", "sim", "--", "--port", "8", "--", "x y")

    assert errors(done) == ["tokenwire: The simulated engine takes no engine arguments: --port 8 -- 'x y'"]
