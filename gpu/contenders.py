"""vLLM's own server and tokenwire with the same model and engine arguments: what a load compares."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from gpu.kit import Kit
from gpu.models import KitModel
from gpu.servers import RunningServer

OPTIONS = ("--enable-prompt-tokens-details",)
"""Options of both servers: usage says how much of a prompt was cached."""


@dataclass(frozen=True, slots=True)
class Contender:
    """A service under load."""

    name: str
    url: str
    model: KitModel
    servers: Mapping[str, RunningServer]
    """By their part; the descendants of a server with an engine are the engine."""

    def cpu_seconds(self) -> dict[str, float]:
        """Return user and system time by part: the API server or the coordinator, the worker, the engine."""
        used: dict[str, float] = {}
        for part, server in self.servers.items():
            times = server.process.cpu_seconds()
            own = times.pop("main", 0.0)
            if part == "coordinator":
                used[part] = own + sum(times.values())
            else:
                used |= {part: own, "engine": sum(times.values())}
        return used

    def cpu_since(self, before: Mapping[str, float], tokens: int) -> dict[str, dict[str, float]]:
        """Return what its parts used since then, and for each token."""
        used = {part: seconds - before.get(part, 0.0) for part, seconds in self.cpu_seconds().items()}
        return {"cpu_s": used, "cpu_us_per_token": {part: 1e6 * each / max(1, tokens) for part, each in used.items()}}

    @property
    def ready_s(self) -> dict[str, float]:
        """How long each server took to become ready."""
        return {part: server.ready_s for part, server in self.servers.items()}


@contextmanager
def vllm(
    kit: Kit, model: KitModel, engine: Sequence[str], environment: Mapping[str, str] | None = None
) -> Iterator[Contender]:
    """Run `vllm serve`."""
    with kit.vllm_server(model, engine=[*engine, *OPTIONS], environment=environment) as server:
        yield Contender("vllm", server.address, model, {"api server": server})


@contextmanager
def tokenwire(
    kit: Kit, model: KitModel, engine: Sequence[str], environment: Mapping[str, str] | None = None
) -> Iterator[Contender]:
    """Run a worker and a coordinator."""
    with (
        kit.tokenwire_worker(model, engine=engine, environment=environment, number=1) as worker,
        kit.coordinator([worker], options=OPTIONS) as coordinator,
    ):
        yield Contender("tokenwire", coordinator.address, model, {"coordinator": coordinator, "worker": worker})


CONTENDERS = {"vllm": vllm, "tokenwire": tokenwire}
"""How each is started."""
