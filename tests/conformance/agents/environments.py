"""Agents from the npm registry, installed once into tests/.cache, each run with its own home."""

import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.cache import CACHE, making


@dataclass(frozen=True)
class Agent:
    """An agent: its npm package, and how to prompt it once."""

    package: str
    version: str
    program: str
    command: Callable[[str, str], Sequence[str]]
    """Its arguments, given a model's name and the prompt."""
    environment: Callable[[str, Path], Mapping[str, str]]
    """Its environment, given the server's URL and its home, into which it may write a configuration."""
    shell_call: Mapping[str, object]
    """A call of its tool that runs a command, which prints `SHELL_OUTPUT`."""


SHELL_OUTPUT = "made-by-42"
_PRINT = "echo made-by-$((6 * 7))"

_CODEX_CONFIGURATION = """\
model_provider = "tokenwire"
[model_providers.tokenwire]
name = "tokenwire"
base_url = "{url}/v1"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 0
[analytics]
enabled = false
"""


def _codex_environment(url: str, home: Path) -> dict[str, str]:
    (home / "config.toml").write_text(_CODEX_CONFIGURATION.format(url=url))
    return {"CODEX_HOME": str(home)}


def _claude_environment(url: str, home: Path) -> dict[str, str]:
    quiet = ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "DISABLE_TELEMETRY", "DISABLE_AUTOUPDATER")
    return {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_AUTH_TOKEN": "unused", **dict.fromkeys(quiet, "1")}


AGENTS = {
    "codex": Agent(
        "@openai/codex",
        "0.169.0",
        "codex",
        lambda model, prompt: ["exec", "--skip-git-repo-check", "--json", "-m", model, prompt],
        _codex_environment,
        {"name": "exec_command", "arguments": {"cmd": _PRINT}},
    ),
    "claude-code": Agent(
        "@anthropic-ai/claude-code",
        "2.1.197",
        "claude",
        lambda model, prompt: ["-p", prompt, "--model", model, "--output-format", "stream-json", "--verbose"],
        _claude_environment,
        {"name": "Bash", "arguments": {"command": _PRINT, "description": "Print a line"}},
    ),
}
"""By name."""


def program_of(name: str) -> Path:
    """Return an agent's program, installed if necessary."""
    agent = AGENTS[name]
    folder = CACHE / "agents" / name
    wanted = f"{agent.package}@{agent.version}"
    with making(folder):
        made = folder / "package.txt"
        if not made.is_file() or made.read_text() != wanted:
            folder.mkdir(parents=True, exist_ok=True)
            npm = ["npm", "install", "--prefix", str(folder), "--no-audit", "--no-fund", "--silent", wanted]
            subprocess.run(npm, check=True, timeout=600)
            made.write_text(wanted)
    return folder / "node_modules" / ".bin" / agent.program


def run_agent(name: str, url: str, model: str, home: Path, is_done: Callable[[str], bool], timeout_s: float) -> str:
    """Prompt an agent once in an empty folder, until it ends or its output is sufficient; return the output."""
    agent = AGENTS[name]
    work = home / "work"
    work.mkdir(parents=True)
    output = home / "output.txt"
    environment = {"HOME": str(home), "PATH": os.environ["PATH"], **agent.environment(url, home)}
    command = [str(program_of(name)), *agent.command(model, "Say hello.")]
    with output.open("wb") as file:
        process = subprocess.Popen(
            command,
            cwd=work,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # npm's script starts the program itself
        )
    try:
        _wait(process, lambda: is_done(output.read_text(errors="replace")), timeout_s)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return output.read_text(errors="replace")


def _wait(process: "subprocess.Popen[bytes]", is_done: Callable[[], bool], timeout_s: float) -> None:
    for _ in range(round(timeout_s * 5)):
        if is_done():
            return
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.2)
            return
