"""Nothing is imported from the directory in which a command is started: it may be a downloaded model."""

import sys
from pathlib import Path

import httpx
import psutil

from tests.processes import Process, running

_LIBRARIES = ("tokenizers", "click", "grpc", "google", "uvicorn", "uvloop", "jinja2", "pydantic", "prometheus_client")
_PYTHON = ("json", "logging", "asyncio", "multiprocessing", "resource", "ctypes", "sitecustomize", "usercustomize")


def lay_traps(tmp_path: Path, *names: str) -> Path:
    """Create a directory whose Python files leave a trace when they run, and end the process."""
    folder = tmp_path / "downloaded-model"
    folder.mkdir()
    for name in names:
        trace = tmp_path / f"{name}.ran"
        (folder / f"{name}.py").write_text(f"open({str(trace)!r}, 'w').close()\nraise SystemExit('{name} ran')\n")
    return folder


def serve_from(directory: Path, tmp_path: Path, *program: str | Path) -> None:
    """Start `serve` with all kinds of child processes there, and use each of them."""
    arguments = ["serve", "--engine", "sim", "--port", "0", "--processes", "2", "--trust-request-chat-template"]
    serve = Process(arguments, tmp_path / "serve.log", program=program, directory=directory)
    try:
        url = serve.wait_for(r"is ready: (http://\S+)")[1]
        body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2, "chat_template": "{{ messages }}"}
        response = httpx.post(f"{url}/v1/chat/completions", json=body, timeout=60)
        assert response.status_code == 200, response.text + serve.log
    finally:
        serve.stop()


def test_the_command_runs_no_file_of_the_working_directory(tmp_path: Path) -> None:
    """Neither does any child process: worker, coordinators, the renderer of requests' templates."""
    directory = lay_traps(tmp_path, "tokenwire", "worker", "coordinator", *_LIBRARIES, *_PYTHON)

    serve_from(directory, tmp_path, Path(sys.executable).with_name("tokenwire"))

    assert not list(tmp_path.glob("*.ran"))


def test_the_module_runs_no_file_of_the_working_directory(tmp_path: Path) -> None:
    """Except a `tokenwire.py`, which `python -m tokenwire` requests from Python itself."""
    directory = lay_traps(tmp_path, "worker", "coordinator", *_LIBRARIES, *_PYTHON)

    serve_from(directory, tmp_path, sys.executable, "-m", "tokenwire")

    assert not list(tmp_path.glob("*.ran"))


def test_processes_of_libraries_are_protected_too(tmp_path: Path) -> None:
    """Every process of a service has PYTHONSAFEPATH in its environment, for those that vLLM starts."""
    with running(["serve", "--engine", "sim", "--port", "0"], tmp_path, "serve") as serve:
        serve.wait_for(r"is ready: (http://\S+)")
        children = psutil.Process(serve.popen.pid).children()

        assert [child.environ().get("PYTHONSAFEPATH") for child in children] == ["1", "1"]
