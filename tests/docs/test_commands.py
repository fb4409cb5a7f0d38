"""Every command in the documents is known here: it is run, or its options are read, or there is a reason not to."""

import importlib.util
import re
import subprocess
from pathlib import Path

import click
import pytest

from tests.docs.commands import ROOT, Command, commands
from tokenwire.cli.main import LazyGroup

NOT_RUN = {
    "aiperf": "a load test of minutes, with a tool of its own environment",
    "claude": "run by `make conformance`",
    "codex": "run by `make conformance`",
    "install": "the units that it installs are read by tests/deploy/test_systemd.py",
    "prometheus": "tests/monitoring checks its configuration",
    "promtool": "run by tests/monitoring",
    "python3": "makes a virtual environment in /opt",
    "systemctl": "needs systemd as PID 1",
    "helm": "rendered by tests/deploy",
    "kubectl": "needs a cluster",
    "pip": "resolved by tests/packaging",
    "pkill": "tests/e2e and `make faults` kill workers by their pid",
    "podman": "built by `make deploy-test`",
    "uv": "tests/packaging builds wheel and sdist",
    "rm": "removes an environment that no test makes",
    "sha256sum": "a release's files are not made by tests",
    "uvx": "fetches a program that is no dependency",
    "vllm": "a load test of minutes",
}
"""Programs that no test runs as the documents do, and why."""
CHECKED = {"cd", "curl", "done", "for", "make", "openssl", "printf", "python", "tokenwire"}
"""Programs whose commands are run or checked: here, and in test_examples.py."""
SHOWN = list(commands())


def of(program: str) -> list[Command]:
    """Return the commands that run a program."""
    return [each for each in SHOWN if each.program == program]


def test_every_command_is_known() -> None:
    """A new one is run by a test, or listed with the reason why not; what no page shows any more is not listed."""
    assert {each.program for each in SHOWN} == CHECKED | set(NOT_RUN)


@pytest.mark.parametrize("command", of("tokenwire"), ids=lambda each: each.text)
def test_the_options_of_commands_exist(command: Command) -> None:
    """With values that they take, and arguments that are required."""
    name, *rest = command.words[1:]
    group = LazyGroup("tokenwire")
    found = group.get_command(group.make_context("tokenwire", ["--help"], resilient_parsing=True), name)

    assert found is not None
    try:
        found.make_context(name, rest[: rest.index("--")] if "--" in rest else rest)
    except click.BadParameter as error:
        if not error.message.endswith("does not exist."):  # a file of the reader's own
            raise


@pytest.mark.parametrize("command", of("make"), ids=lambda each: each.text)
def test_targets_of_make_exist(command: Command) -> None:
    """With their ARGS, which are options of the program that they run."""
    words = command.words
    shown = subprocess.run([*words[:1], "--dry-run", *words[1:]], cwd=ROOT, capture_output=True, text=True)

    assert shown.returncode == 0, shown.stderr
    if "serve" in words:
        arguments = " ".join(word.removeprefix("ARGS=") for word in words if word.startswith("ARGS="))
        test_the_options_of_commands_exist(Command(command.page, f"tokenwire serve {arguments}"))


@pytest.mark.parametrize("command", of("python"), ids=lambda each: each.text)
def test_programs_in_python_exist(command: Command) -> None:
    """Modules, and examples, each of which test_examples.py runs."""
    words = command.words[1:]
    if words[0] == "-m":
        assert importlib.util.find_spec(words[1]) is not None
    else:
        assert Path(words[0]).parent == Path("examples")
        assert (ROOT / words[0]).is_file()


@pytest.mark.parametrize(
    "command", [each for each in SHOWN if each.program in {"cd", "helm", "podman"}], ids=lambda each: each.text
)
def test_paths_of_commands_exist(command: Command) -> None:
    """Those of the repository, from its root or from where `cd` leads."""
    folders = [ROOT, *(ROOT / each.words[1] for each in of("cd") if each.page == command.page)]
    for word in command.words[1:]:
        if re.match(r"(deploy|examples|docs|scripts)/", word):
            assert any((folder / word).exists() for folder in folders), word


def test_certificates_are_made_as_shown(tmp_path: Path) -> None:
    """The first block of openssl commands runs, and the certificates verify."""
    (block,) = re.findall(
        r"^```sh\n(openssl req -x509.*?)^```", (ROOT / "docs" / "guides" / "tls.md").read_text(), re.M | re.S
    )

    subprocess.run(["sh", "-euc", block], cwd=tmp_path, check=True, capture_output=True)

    for name in ("worker", "coordinator"):
        subprocess.run(["openssl", "verify", "-CAfile", "ca.crt", f"{name}.crt"], cwd=tmp_path, check=True)
