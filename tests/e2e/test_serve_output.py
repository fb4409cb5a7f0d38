"""The output of `tokenwire serve`: phases, addresses, requests, and nothing else by default."""

import signal
from pathlib import Path

import httpx
import pytest

from tests.processes import Process, running

MESSAGES = [{"role": "user", "content": "Hi"}]
SERVE = ["serve", "--engine", "sim", "--port", "0"]


def test_a_start_and_a_stop_are_a_few_lines(folder: Path) -> None:
    """Phases, the page's URL, commands to paste, requests, and one line at the end. Ctrl-C exits with 0."""
    with running(SERVE, folder, "serve") as serve:
        url = serve.wait_for(r"is ready: (http://\S+)  \(the status page\)\n")[1]
        assert httpx.post(f"{url}/v1/chat/completions", json={"messages": MESSAGES, "max_tokens": 2}).status_code == 200
        serve.wait_for("request outcome=")
        serve.signal(signal.SIGINT)

        assert serve.wait_exit() == 0

        first, *announced, request, last = [line for line in serve.log.splitlines() if line]
        assert first == "tokenwire: starting"
        assert announced[0].startswith("tokenwire is ready")
        assert [line.split()[0] for line in announced[1:3]] == ["curl", "-d"]
        assert announced[3].endswith(f"tokenwire chat --url {url}")
        assert len(announced) == 4
        assert " coordinator: request outcome=ok " in request
        assert last == "tokenwire: stopping"


def test_log_level_shows_both_halves_logs(folder: Path) -> None:
    """With `--log-level`."""
    with running([*SERVE, "--log-level", "info"], folder, "serve") as serve:
        serve.wait_for("is ready")
        serve.wait_for("worker: ready")
        serve.wait_for("coordinator: serving")


@pytest.mark.parametrize("command", [["serve"], ["worker"]])
def test_a_wrong_path_is_reported_before_anything_starts(folder: Path, command: list[str]) -> None:
    """No engine is loaded, no port bound: one line, and exit code 1."""
    process = Process([*command, str(folder / "nothing")], folder / "log", {"PYTHONPROFILEIMPORTTIME": "1"})

    assert process.wait_exit() == 1

    announced = [line for line in process.log.splitlines() if not line.startswith("import time:")]
    assert announced == [
        f"tokenwire: There is no model at {folder}/nothing. Name a directory with a config.json, or a hub id: ORG/NAME."
    ]
    assert "vllm" not in process.log.replace("vllm_names", "")


def test_serve_has_options_of_its_worker(folder: Path) -> None:
    """Such as those of the simulated engine."""
    (script := folder / "script").write_text("[72, 105]")
    with running([*SERVE, "--sim-script", str(script), "--sim-step-ms", "0"], folder, "serve") as serve:
        url = serve.wait_for(r"is ready: (http://\S+)")[1]
        reply = httpx.post(f"{url}/v1/chat/completions", json={"messages": MESSAGES, "max_tokens": 4}).json()

    assert reply["choices"][0]["message"]["content"] == "HiHi"


def test_serve_checks_options_of_both_halves_first(folder: Path) -> None:
    """One line that names the option, and exit code 1."""
    process = Process([*SERVE, "--sim-fault", "melt@step=1"], folder / "log", {})

    assert process.wait_exit() == 1
    assert process.log.startswith("tokenwire: --sim-fault: fault 'melt@step=1'")
    assert len(process.log.splitlines()) == 1
