"""vLLM's own server and tokenwire with the same model and engine arguments, for comparisons."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil

from tests.ports import free_port
from tests.processes import Process, Service
from tokenwire.process.shared_options import default_cache_dir
from tokenwire.worker.vllm_engine.embedded_model import EMBEDDED_MODEL_NAME, prepare_embedded_model

MAX_MODEL_LEN = 2048
ENGINE_ARGUMENTS = ("--dtype", "float32", "--enforce-eager", "--max-model-len", str(MAX_MODEL_LEN))
"""In float32 a sequence does not depend on what else is in its batch."""
START_TIMEOUT_S = 400.0

_ENVIRONMENT = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"}
_CORES = sorted(os.sched_getaffinity(0))


PLAIN = ("--trust-request-chat-template", "--enable-prompt-tokens-details")
"""Options of both servers that some fields need to be served at all; no parser of the model's output."""
PARSERS = (*PLAIN, "--enable-auto-tool-choice", "--tool-call-parser", "hermes", "--reasoning-parser", "granite")
"""The same with parsers of tool calls and reasoning that need no special tokens: the embedded model has none."""


def environment(first: bool = False) -> dict[str, str]:
    """Return an engine's environment, bound to the first or the last core; vLLM would bind all to the first."""
    return {**_ENVIRONMENT, "VLLM_CPU_OMP_THREADS_BIND": str(_CORES[0 if first else -1])}


def lean_environment(first: bool = False) -> dict[str, str]:
    """Return the same for an engine that computes in its core's process.

    By itself vLLM computes in another one below: one more that imports all of it, and while either works the other
    waits in a busy loop. Nothing is compiled either, which takes longer than it saves a few requests.
    """
    lean = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "OMP_NUM_THREADS": "1", "TORCHDYNAMO_DISABLE": "1"}
    return {**environment(first), **lean}


class VllmServer(Process):
    """vLLM's own API server with the embedded model, or another one under its name."""

    def __init__(
        self,
        folder: Path,
        options: Sequence[str] = PLAIN,
        model: Path | None = None,
        extra_environment: Mapping[str, str] | None = None,
    ) -> None:
        model = model or prepare_embedded_model(default_cache_dir(), lambda _: None)
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.log_path = folder / "vllm.log"
        module = "vllm.entrypoints.launchers.api_server.entry"
        command = [sys.executable, "-m", module, "--model", str(model), "--served-model-name", EMBEDDED_MODEL_NAME]
        command += ["--enable-scale-out"]  # else it rejects what ids go in and out by
        command += ["--host", "127.0.0.1", "--port", str(port), *ENGINE_ARGUMENTS, *options]
        with self.log_path.open("wb") as output:
            self.popen = subprocess.Popen(
                command,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **lean_environment(first=True), **(extra_environment or {})},
                start_new_session=True,
            )

    def wait_ready(self) -> None:
        """Wait until it is ready."""
        self.wait_for(r"Application startup complete", START_TIMEOUT_S)


@contextmanager
def running_service(
    folder: Path,
    options: Sequence[str] = PLAIN,
    engine_arguments: Sequence[str] = (),
    model: Path | None = None,
    extra_environment: Mapping[str, str] | None = None,
) -> Iterator[Service]:
    """Run `tokenwire serve` with the embedded model, or another one under its name."""
    served = () if model is None else (str(model), "--served-model-name", EMBEDDED_MODEL_NAME)
    # vLLM's server always takes transfer parameters.
    taken = (*options, "--allow-kv-transfer-params")
    arguments = ["serve", *served, "--port", "0", *taken, "--", *ENGINE_ARGUMENTS, *engine_arguments]
    process = Process(arguments, folder / "serve.log", {**lean_environment(), **(extra_environment or {})})
    try:
        url = process.wait_for(r"is ready: (http://\S+)", START_TIMEOUT_S)[1]
        worker = child(process, "worker").cmdline()
        yield Service(process, url, [], [worker[worker.index("--listen") + 1]])
    finally:
        process.stop()


def child(process: Process, part: str) -> psutil.Process:
    """Find a part of `tokenwire serve` among its children."""
    (found,) = [each for each in psutil.Process(process.popen.pid).children() if part in each.cmdline()[:5]]
    return found
