"""The servers under load: tokenwire, SMG and `vllm serve`, each in front of a simulated engine or the real one."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer

from gpu.contenders import Contender
from gpu.kit import Kit
from gpu.servers import RunningServer, ServerProcess, started
from tests.cache import CACHE
from tests.conformance.clients.environments import python_with
from tests.ports import free_port
from tests.processes import wait_healthy, wait_models

ENVIRONMENTS = CACHE / "standard"
SMG = "smg==1.13.0"
SMG_WORKER = ("smg-grpc-proto==0.4.28", "smg-grpc-servicer==0.14.1", "grpcio-reflection")

_ROOT = Path(__file__).parents[2]
_TEXT = " The river runs past the old mill, and children count the boats that go down to the sea."
"""What a simulated engine generates, again and again."""
_START_S = 600.0
_MAX_NUM_SEQS = 1024
_SMG_ENVIRONMENT = {
    "SMG_VLLM_SERVICER_WARMUP": "off",  # three minutes on two cores
    "PYTHONPATH": str(_ROOT),
    "PYTHONUNBUFFERED": "1",
    "PYTHONDONTWRITEBYTECODE": "",
}


@dataclass(frozen=True, slots=True)
class Simulation:
    """A simulated engine that computes nothing: all servers get the same tokens at the same times."""

    script: Path
    step_ms: float
    max_model_len: int

    @classmethod
    def create(cls, kit: Kit, step_ms: float, max_model_len: int = 8192) -> "Simulation":
        """Write the script."""
        tokenizer = Tokenizer.from_file(str(kit.model.folder / "tokenizer.json"))
        script = kit.out / "script.json"
        script.write_text(json.dumps(tokenizer.encode(_TEXT, add_special_tokens=False).ids))
        return cls(script, step_ms, max_model_len)

    @property
    def tokenwire_options(self) -> tuple[str, ...]:
        """The options of tokenwire's worker."""
        options = {"script": self.script, "step-ms": self.step_ms, "prefill-rate": 0, "max-num-seqs": _MAX_NUM_SEQS}
        options["max-model-len"] = self.max_model_len
        return ("--engine", "sim", *(part for name, value in options.items() for part in (f"--sim-{name}", str(value))))

    @property
    def vllm_arguments(self) -> tuple[str, ...]:
        """The engine arguments of `vllm serve`: prompts of a step are not limited."""
        backend = "benchmarks.standard.stub_executor.StubExecutor"
        options = {"num-seqs": _MAX_NUM_SEQS, "num-batched-tokens": 2**18, "model-len": self.max_model_len}
        limits = [part for name, value in options.items() for part in (f"--max-{name}", str(value))]
        config = json.dumps({"script": json.loads(self.script.read_text()), "step_ms": self.step_ms})
        return (
            "--distributed-executor-backend",
            backend,
            "--no-async-scheduling",
            "--additional-config",
            config,
            *limits,
        )

    def smg_worker_arguments(self, kit: Kit) -> list[str]:
        """Return the arguments of SMG's simulated worker."""
        numbers = (self.step_ms, _MAX_NUM_SEQS, self.max_model_len)
        return [str(kit.model.folder), kit.model.name, str(self.script), *map(str, numbers)]


Engine = Simulation | None
"""None is the real one."""


@contextmanager
def tokenwire(kit: Kit, engine: Engine) -> Iterator[Contender]:
    """Run a worker and a coordinator."""
    options, arguments = (engine.tokenwire_options, []) if engine else ((), kit.engine_arguments())
    with (
        kit.tokenwire_worker(options=options, engine=arguments, timeout_s=_START_S) as worker,
        kit.coordinator([worker]) as coordinator,
    ):
        yield Contender("tokenwire", coordinator.address, kit.model, {"coordinator": coordinator, "worker": worker})


@contextmanager
def vllm(kit: Kit, engine: Engine) -> Iterator[Contender]:
    """Run vLLM's own API server."""
    arguments, variables = (engine.vllm_arguments, {"VLLM_ALLOW_LONG_MAX_MODEL_LEN": "1"}) if engine else (None, {})
    with kit.vllm_server(engine=arguments, environment=variables, timeout_s=_START_S) as server:
        yield Contender("vllm", server.address, kit.model, {"api server": server})


@contextmanager
def smg(kit: Kit, engine: Engine) -> Iterator[Contender]:
    """Run SMG's gateway and a worker: its own servicer with the real engine."""
    python = str(python_with(ENVIRONMENTS / "smg-worker", SMG_WORKER, shared=True))
    if engine:
        arguments = engine.smg_worker_arguments(kit)
        worker = _server(kit, python, "benchmarks.standard.smg_worker", arguments, "smg-worker")
        pattern, address = r"ready: (\S+)", ""
    else:
        address = f"127.0.0.1:{free_port()}"
        arguments = ["--model", str(kit.model.folder), "--served-model-name", kit.model.name, *kit.engine_arguments()]
        arguments += ["--host", "127.0.0.1", "--port", address.rpartition(":")[2]]
        # By itself it publishes cache events on all interfaces.
        arguments += ["--kv-events-config", json.dumps({"enable_kv_cache_events": False})]
        # The module that this one stands for does not log that it is ready when it is the program.
        worker = _server(kit, python, "vllm.entrypoints.grpc_server", arguments, "smg-worker")
        pattern = "Server is ready to accept requests"
    with started(worker, pattern, _START_S, address) as running, _gateway(kit, running.address) as gateway:
        yield Contender("smg", gateway.address, kit.model, {"gateway": gateway, "worker": running})


@contextmanager
def _gateway(kit: Kit, worker: str) -> Iterator[RunningServer]:
    port, folder = free_port(), str(kit.model.folder)
    options = {
        "host": "127.0.0.1",
        "port": port,
        "worker-urls": f"grpc://{worker}",
        "model-path": folder,
        "tokenizer-path": folder,
        "prometheus-host": "127.0.0.1",
        "prometheus-port": free_port(),
    }
    arguments = [part for name, value in options.items() for part in (f"--{name}", str(value))]
    arguments.append("--tokenizer-cache-enable-l1")  # as tokenwire's cache of segments, which is on by itself
    python = str(python_with(ENVIRONMENTS / "smg", [SMG]))
    process = _server(kit, python, "smg.launch_router", arguments, "smg")
    with started(process, "Starting router", 60, f"http://127.0.0.1:{port}") as server:
        wait_healthy(server.address, process)
        wait_models(server.address, [kit.model.name])
        yield server


def _server(kit: Kit, python: str, module: str, arguments: Sequence[str], name: str) -> ServerProcess:
    variables = {**kit.environment(), **_SMG_ENVIRONMENT}
    return ServerProcess(module, arguments, kit.out / f"{name}.log", variables, python)


SERVERS: Mapping[str, Callable[[Kit, Engine], AbstractContextManager[Contender]]] = {
    "tokenwire": tokenwire,
    "smg": smg,
    "vllm": vllm,
}
"""How each is started."""
FRONT_ENDS = frozenset({"coordinator", "gateway", "api server"})
"""The parts of servers that are compared."""
