"""Every example and every curl command of the documents runs as it is, against what `make serve` serves."""

import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest

from tests.docs.commands import ROOT, Command, commands
from tests.docs.test_guides import PAGES
from tests.e2e.checkpoints import adapter, changed_weights
from tests.processes import Service
from tokenwire.process.shared_options import default_cache_dir
from tokenwire.worker.vllm_engine.embedded_model import prepare_embedded_model

FOLDER = ROOT / "examples"
OWN_FLEET = {
    "crash_under_load.py": r"40 of 40 replies complete, and the same",
    "embedded.py": r"/hello: hello\n/v1/completions: .",
}
"""What examples print that need no server."""
SERVED = {
    "chat.py": r"Paris.*\n\(\d+ tokens in, \d+ out\)",
    "chat.sh": r"(?s)data: .*data: \[DONE\]",
    "chat.mjs": r"Paris",
    "streaming.py": r"(?s).\n\(ended by: stop\)\n\(\d+ tokens\)\n\(computed after .*_total{model=\"\S+\"} \d+\.0\)",
    "fields.py": r"400 .*best_of.*\n400 .*use_beam_search.*\n400 .*suffix",
    "tools.py": r"get_weather\({\"city\": \"Rome\"}\) -> {'city': 'Rome', 'sky': 'sunny', 'celsius': 21}\n.",
    "structured_output.py": r"schema: {'name': .*, 'age': \d+}\nchoice: (green|blue|red)\nregex:  (19|20)\d\d",
    "ids_and_logprobs.py": r"prompt ids: \[1, .*\]\nreply ids:  \[.*\]\n(.* '.+' \d+%, '.+' \d+%, '.+' \d+%\n){8}",
    "rl_rollout.py": r"(.* 0 of them as generated.*\n)(.*\n){3}\d+ tokens in one sequence, .* exact in every turn",
    "trainer_rows.py": r"(\d+ tokens, \d+ to train on, mean log-probability -\d+\.\d\d, reward [01]\.0\n){2}",
    "weight_update.py": r"(?s)update: ok step_1.*100 tokens .*'default', .*'step_1'.*'end': 100}\]\nback to: default",
    "lora.py": r"(?s)models:  \['\S+', 'red'\]\nbase: .*\nadapter: .*\nmodels:  \['\S+'\]",
}
"""What the others print."""
RUN_ALL = """
import runpy, sys
for path in sys.argv[1:]:
    try:
        runpy.run_path(path)
    except SystemExit as error:
        print(error)
"""
INTERPRETERS = {".py": sys.executable, ".sh": "sh", ".mjs": "node"}


def run_example(name: str, url: str = "http://127.0.0.1:9") -> str:
    """Run an example; returns what it prints."""
    interpreter = INTERPRETERS[Path(name).suffix]
    if shutil.which(interpreter) is None:
        pytest.skip(f"needs {interpreter}")
    done = subprocess.run(
        [interpreter, str(FOLDER / name)],
        env={**os.environ, "TOKENWIRE_URL": url},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


NOT_RUN = (
    "_weight_transfer_engine",
    "/start_weight_update",
    "update_info",
    "/finish_weight_update",
    "/get_sequence_logprobs/",
    "/v1/embeddings",
)
"""Parts of curl commands that need GPUs that transfer weights, a CPU engine without adapters, or one that embeds."""


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory, embedded: Service) -> Iterator[Path]:
    """A directory with the checkpoint and the adapter that the documents name; the first weights come back."""
    folder = tmp_path_factory.mktemp("shared")
    (folder / "checkpoints").mkdir()
    (folder / "adapters").mkdir()
    model = prepare_embedded_model(default_cache_dir(), lambda _: None)
    changed_weights(model, folder / "checkpoints" / "step_10")
    adapter(model, folder / "adapters" / "red")
    yield folder
    for path in ("/resume", "/reload_weights", "/reset_prefix_cache"):
        assert httpx.post(embedded.url + path, timeout=60).status_code == 200


def test_every_example_is_run_and_listed() -> None:
    """By the tests below, and in the README beside them."""
    listed = re.findall(r"\[(\S+?)\]\(\1\)", (FOLDER / "README.md").read_text())

    assert sorted(listed) == sorted([*OWN_FLEET, *SERVED])
    assert sorted(listed) == sorted(path.name for path in FOLDER.iterdir() if path.suffix in INTERPRETERS)


class NoModels(BaseHTTPRequestHandler):
    """A server that is not ready."""

    models = "[]"

    def do_GET(self) -> None:
        self._send(200, f'{{"object": "list", "data": {self.models}}}')

    def do_POST(self) -> None:
        self._send(503, "no worker has connected yet")

    def _send(self, status: int, text: str) -> None:
        self.send_response(status)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        """Log nothing."""


class ModelElsewhere(NoModels):
    """A server with a model whose files it does not share."""

    models = '[{"id": "simulated", "object": "model", "created": 0, "owned_by": "tokenwire", "root": "simulated"}]'


@contextmanager
def listening(handler: type[NoModels]) -> Iterator[str]:
    """Serve; yields the URL."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=[0.05]).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


def ended(command: list[str], url: str) -> "subprocess.CompletedProcess[str]":
    """Run a command against a server to its end."""
    env = {**os.environ, "TOKENWIRE_URL": url}
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)


@pytest.mark.slow
def test_examples_say_that_no_model_is_served_yet() -> None:
    """Those that look for one; in one process, without the two that import torch."""
    asking = [FOLDER / name for name in SERVED if "models" in (FOLDER / name).read_text()]
    assert len(asking) == 9
    light = [str(path) for path in asking if "torch" not in path.read_text()]
    with listening(NoModels) as url:
        ran = ended([sys.executable, "-c", RUN_ALL, *light], url)

    assert ran.stdout == "The server serves no model yet.\n" * 6, ran.stderr


@pytest.mark.slow
def test_examples_that_change_a_model_say_that_its_files_are_elsewhere() -> None:
    """In one line."""
    changing = [str(path) for path in sorted(FOLDER.glob("*.py")) if "safetensors" in path.read_text()]
    assert len(changing) == 2
    with listening(ModelElsewhere) as url:
        ran = ended([sys.executable, "-c", RUN_ALL, *changing], url)

    lines = [
        f"the server's model, and there is no simulated/{name} here." for name in ("config.json", "model.safetensors")
    ]
    assert all(line.endswith(end) for line, end in zip(ran.stdout.splitlines(), lines, strict=True)), ran.stderr


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_the_example_in_javascript_ends_with_the_servers_error() -> None:
    """Without a stack."""
    with listening(NoModels) as url:
        ran = ended(["node", str(FOLDER / "chat.mjs")], url)

    assert (ran.returncode, ran.stderr) == (1, "no worker has connected yet\n")


@pytest.mark.slow
@pytest.mark.parametrize("name", OWN_FLEET)
def test_an_example_with_its_own_fleet_shows_what_it_promises(name: str) -> None:
    """It needs no server and no model."""
    assert re.search(OWN_FLEET[name], run_example(name))


@pytest.mark.engine
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", SERVED)
def test_an_example_shows_what_it_promises(name: str, embedded: Service) -> None:
    """On the real engine."""
    assert re.search(SERVED[name], run_example(name, embedded.url)), name


def curls() -> dict[str, list[Command]]:
    """Return the curl commands of each page, in order: some undo what others did."""
    found: dict[str, list[Command]] = {}
    for command in commands():
        if (
            command.program == "curl"
            and command.page not in PAGES
            and not any(part in command.text for part in NOT_RUN)
        ):
            found.setdefault(command.page, []).append(command)
    return found


@pytest.mark.engine
@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", curls())
def test_the_curl_commands_of_a_page_succeed(page: str, embedded: Service, checkpoints: Path) -> None:
    """As they are shown, but for the server's address and the folder of checkpoints."""
    for command in curls()[page]:
        text = re.sub(r"(http://127\.0\.0\.1|localhost):8000", embedded.url, command.text).replace(
            "/shared", str(checkpoints)
        )
        text = re.sub(r"^curl", "curl --silent --show-error --fail-with-body", text)

        done = subprocess.run(["sh", "-c", text], capture_output=True, text=True, timeout=120)

        assert done.returncode == 0, f"{text}\n{done.stdout}{done.stderr}"
        assert done.stdout, text
