"""Invalid model names are rejected before an engine is loaded."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from tokenwire.cli.model_source import check_model
from tokenwire.errors import NotFound

_CHECK = "import sys; from tokenwire.cli.model_source import check_model; check_model(sys.argv[1], sys.argv[2:])"
_TOKEN = "hf_fake"


class _Hub(BaseHTTPRequestHandler):
    """Has the repository org/there, org/private with a token, and an internal error for org/broken."""

    def do_GET(self) -> None:
        repository = self.path.removeprefix("/api/models/")
        allowed = {"org/there", "there"}
        if _TOKEN in self.headers.get("Authorization", ""):
            allowed.add("org/private")
        self.send_response(200 if repository in allowed else 503 if repository == "org/broken" else 404)
        if repository not in allowed:
            self.send_header("X-Error-Code", "RepoNotFound" if repository != "org/broken" else "Unavailable")
        body = json.dumps({"id": repository, "siblings": []}).encode()
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Log nothing."""


@pytest.fixture(scope="module")
def hub() -> Iterator[str]:
    """A hub on loopback."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Hub) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def run(command: list[str], place: Path, hub: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Python in an environment with this hub only."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "VLLM_", "TOKENWIRE_"))}
    environment = {"HF_HOME": str(place), "HF_ENDPOINT": hub, "NO_PROXY": "*", **environment}
    return subprocess.run(
        [sys.executable, *command], env=kept | environment, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.parametrize("file", ["config.json", "params.json", "model-q4.gguf"])
def test_directories_with_a_model_are_taken(tmp_path: Path, file: str) -> None:
    """In any format."""
    (tmp_path / file).touch()

    check_model(str(tmp_path))


@pytest.mark.parametrize("model", ["s3://bucket/a/model", "gs://bucket/model", "az://account/model"])
def test_urls_are_not_checked(model: str) -> None:
    """vLLM handles them."""
    check_model(model)


@pytest.mark.parametrize("model", ["/no/such/model", "./nothing", "../nothing", "~/model", "a/b/c", "a model", "a:b:c"])
def test_paths_that_do_not_exist_are_rejected(model: str) -> None:
    """A name that cannot be a hub id is a path."""
    with pytest.raises(NotFound, match="There is no model at"):
        check_model(model)


def test_a_directory_without_a_model_is_rejected(tmp_path: Path) -> None:
    """The message names what is missing."""
    with pytest.raises(NotFound, match=r"contains no model: it has no config\.json"):
        check_model(str(tmp_path))


@pytest.mark.parametrize(
    ("model", "environment", "arguments"),
    [
        ("there", {}, []),
        ("org/there", {}, []),
        ("org/there:Q4_K_M", {}, []),
        ("org/there/model-Q4_K_M.gguf", {}, []),
        ("org/private", {"HF_TOKEN": _TOKEN}, []),
        ("org/private", {}, ["--hf-token", _TOKEN]),
        ("org/private", {}, [f"--hf_token={_TOKEN}"]),
        ("org/broken", {}, []),
        ("org/cached", {}, []),
        ("org/cached", {"HF_HUB_OFFLINE": "1"}, []),
        ("org/elsewhere", {"VLLM_USE_MODELSCOPE": "True"}, []),
    ],
)
def test_names_that_a_hub_may_have_are_accepted(
    tmp_path: Path, hub: str, model: str, environment: dict[str, str], arguments: list[str]
) -> None:
    """Also those in its cache, those of another hub, and those whose hub returns an internal error."""
    (tmp_path / "hub" / "models--org--cached" / "snapshots" / "abc").mkdir(parents=True)

    done = run(["-c", _CHECK, model, *arguments], tmp_path, hub, **environment)

    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("environment", "reason"),
    [
        ({}, r"no such repository at http://127\.0\.0\.1:\d+\. Check the name \(ORG/NAME\), set HF_TOKEN"),
        ({"HF_HUB_OFFLINE": "1"}, "HF_HUB_OFFLINE disables the hub. Unset it"),
        ({"HF_ENDPOINT": "http://127.0.0.1:1"}, r"the hub http://127\.0\.0\.1:1 cannot be reached \(.+HF_ENDPOINT"),
    ],
)
def test_names_that_no_hub_has_are_rejected(tmp_path: Path, hub: str, environment: dict[str, str], reason: str) -> None:
    """With the places that were searched, and a remedy."""
    done = run(["-c", _CHECK, "org/private"], tmp_path, hub, **environment)

    assert done.returncode == 1
    with pytest.raises(NotFound, match=reason):
        raise NotFound(done.stderr)
    assert f"There is no model org/private: it is neither a directory nor in the hub's cache {tmp_path}" in (
        done.stderr
    )


@pytest.mark.parametrize("command", [["serve"], ["worker", "--listen", "127.0.0.1:0"]])
def test_a_wrong_name_ends_startup_before_vllm_is_loaded(tmp_path: Path, hub: str, command: list[str]) -> None:
    """The error is one line, and no engine module is imported."""
    done = run(["-X", "importtime", "-m", "tokenwire", *command, "no-such-model"], tmp_path, hub)

    lines = [line for line in done.stderr.splitlines() if not line.startswith("import time:")]
    assert done.returncode == 1
    assert len(lines) == 1
    assert lines[0].startswith("tokenwire: There is no model no-such-model: ")
    assert not {"torch", "vllm", "transformers"} & {line.split("|")[-1].strip() for line in done.stderr.splitlines()}
