"""New weights while streams run: from a directory, over CUDA IPC, over NCCL, and parameter by parameter.

Each way proves itself: greedy ids become those of an engine started with the new weights and, once the old weights are
back, the old ones again; streams that are frozen meanwhile go on and say which weights made which tokens. NCCL refuses
two processes on one GPU; with another NCCL_HOSTID the trainer passes for another machine's, over sockets.
"""

import json
import os
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from gpu.completions import GreedyStream, Refused, greedy, post, refusal
from gpu.kit import Kit
from gpu.models import KitModel
from gpu.parts import Parts, timed
from gpu.perturbed import perturb
from gpu.servers import StartedServers, started_together
from gpu.step import Skipped
from gpu.trainer import HOST, Trainer, running_trainer
from tests.ports import free_port

NAME = "weights"
LIMIT_S = 180

INITIAL, PERTURBED = "initial", "perturbed"
_PROMPTS = ("Once upon a time there was a fisherman who", "The three most important rules of cooking are")
_TOKENS = 32
_STREAMS = 4
_BEGUN = 20
_NCCL = {"NCCL_NET": "Socket", "NCCL_SOCKET_IFNAME": "lo", "NCCL_DEBUG": "WARN"}
_GRAPHS = {"mode": 0, "cudagraph_mode": "FULL_DECODE_ONLY", "cudagraph_capture_sizes": [1, 2, 4, 8]}

Send = Callable[[str, dict[str, float]], None]
"""Gives an engine the initial or the perturbed weights; adds the seconds of its stages."""


@dataclass(frozen=True, slots=True)
class _Setting:
    kit: Kit
    servers: StartedServers
    parts: Parts

    def run(self, name: str, server: str, part: Callable[[dict[str, Any], str], None], needs_gpu: bool = False) -> None:
        """Run a part with its results and the URL of a coordinator of its own in front of a server."""

        with self.parts.part(name) as found:
            if needs_gpu and not self.kit.on_cuda:
                raise Skipped("needs a GPU")
            options, log = ["--enable-rl"], f"coordinator-{name.replace(' ', '-')}"
            with self.kit.coordinator([self.servers[server]], options=options, name=log) as coordinator:
                part(found, coordinator.address)


def run(kit: Kit) -> dict[str, Any]:
    """Run all ways."""
    perturbed = kit.out / "models" / PERTURBED
    names = perturb(kit.model.folder, perturbed)
    # Any engine takes weights from a directory, whichever backend it has for transfers.
    starts = {"engine": partial(_worker, kit, kit.model, "engine", 0, "ipc")}
    starts["changed"] = partial(_worker, kit, KitModel(kit.model.name, perturbed), "changed", 1, None)
    if kit.on_cuda:
        starts["nccl"] = partial(_worker, kit, kit.model, "nccl", 2, "nccl")
    parts = Parts(kit.out)
    with ExitStack() as stack:
        trainers = _start_trainers(kit, stack, {INITIAL: kit.model.folder, PERTURBED: perturbed})
        servers = stack.enter_context(started_together(starts, at_once=len(starts) if kit.on_cuda else 1))
        with parts.part("start") as found:
            found |= {name: servers[name].ready_s for name in starts}
        _run_parts(_Setting(kit, servers, parts), perturbed, names, trainers)
    return {"parts": parts.results}


def _run_parts(setting: _Setting, perturbed: Path, names: list[str], trainers: dict[str, Trainer]) -> None:
    kit, expected = setting.kit, list[list[int]]()

    def new_engine(found: dict[str, Any], url: str) -> None:
        expected.extend(_ids(kit, url))
        found["ids"] = expected

    def directory(found: dict[str, Any], url: str) -> None:
        _prove(kit, url, expected, partial(_from_directory, url, perturbed), found)

    def ipc(found: dict[str, Any], url: str) -> None:
        _prove(kit, url, expected, _over_ipc(url, trainers["ipc"], found), found)

    def one_machine(found: dict[str, Any], url: str) -> None:
        found["refused"] = _refused_join(url, trainers["same"])
        found["warnings"] = [line for line in setting.servers["nccl"].process.log.splitlines() if "NCCL WARN" in line]

    def nccl(found: dict[str, Any], url: str) -> None:
        _prove(kit, url, expected, _over_nccl(url, trainers["other"], found), found)

    def named(found: dict[str, Any], url: str) -> None:
        if not kit.on_cuda:
            refused = refusal(url, "/init_communicator/", {"host": HOST, "port": free_port()})
            found["refused"] = str(refused)
            assert refused.status == 501
            return
        _prove(kit, url, expected, _by_name(url, trainers["other"], names, found), found)

    setting.run("new engine", "changed", new_engine)
    setting.run("directory", "engine", directory)
    setting.run("ipc", "engine", ipc, needs_gpu=True)
    setting.run("nccl on one machine", "nccl", one_machine, needs_gpu=True)
    setting.run("nccl", "nccl", nccl, needs_gpu=True)
    setting.run("named parameters", "nccl" if kit.on_cuda else "engine", named)


def _worker(kit: Kit, model: KitModel, name: str, number: int, backend: str | None) -> Any:
    engine, environment = kit.engine_arguments(share=0.2), dict(kit.environment(number))
    if kit.on_cuda:
        engine += ["--kv-cache-memory-bytes", str(2 * 2**30), "--compilation-config", json.dumps(_GRAPHS)]
        engine += ["--weight-transfer-config", json.dumps({"backend": backend})] if backend else []
        environment |= {**_NCCL, "VLLM_ALLOW_INSECURE_SERIALIZATION": "1"}
        if backend == "ipc" and find_spec("ray") is None:
            environment["PYTHONPATH"] = os.pathsep.join([_ray_stand_in(kit.out), os.environ.get("PYTHONPATH", "")])
    return kit.tokenwire_worker(model, engine=engine, environment=environment, name=name, number=number)


def _ray_stand_in(out: Path) -> str:
    """Return a folder with an empty `ray`, which vLLM's IPC engine imports but needs for Ray's actors only."""
    package = out / "stand-ins" / "ray"
    package.mkdir(parents=True, exist_ok=True)
    (package / "__init__.py").write_text('"""Nothing: vLLM finds no Ray."""\n')
    return str(package.parent)


def _start_trainers(kit: Kit, stack: ExitStack, folders: dict[str, Path]) -> dict[str, Trainer]:
    if not kit.on_cuda:
        return {}
    environments = {"ipc": {}, "same": _NCCL, "other": {**_NCCL, "NCCL_HOSTID": "trainer"}}
    trainers = {}
    for name, environment in environments.items():
        trainers[name] = stack.enter_context(running_trainer(folders, environment))
        trainers[name].begin("size")  # loads the weights, and imports what that needs, while the engines start
    return trainers


# The proof.


def _ids(kit: Kit, url: str) -> list[list[int]]:
    return [greedy(url, kit.model.name, prompt, _TOKENS).token_ids for prompt in _PROMPTS]


def _prove(kit: Kit, url: str, expected: list[list[int]], send: Send, found: dict[str, Any]) -> None:
    before = _ids(kit, url)
    found["to new weights"] = {}
    found["streams"] = _updated_under_streams(kit, url, send, found["to new weights"])
    after = _ids(kit, url)
    found["back"] = {}
    _paused(url, INITIAL, send, found["back"])
    restored = _ids(kit, url)
    found["ids changed"] = all(new != old for new, old in zip(after, before, strict=True))
    found["ids as of a new engine"] = after == expected if expected else None
    found["ids restored"] = restored == before
    assert found["ids changed"], "the ids did not change"
    assert not expected or after == expected, f"a new engine with these weights gives {expected}, not {after}"
    assert found["ids restored"], f"the ids were {before} and are {restored}"


def _paused(url: str, label: str, send: Send, seconds: dict[str, float]) -> None:
    with timed(seconds, "paused"):
        with timed(seconds, "pause"):
            post(url, "/pause?mode=keep&clear_cache=false")
        send(label, seconds)
        with timed(seconds, "resume"):
            post(url, "/resume")


def _updated_under_streams(kit: Kit, url: str, send: Send, seconds: dict[str, float]) -> dict[str, Any]:
    """Update while streams run; return what became of them. Raises AssertionError if one was lost."""
    tokens = 600 if kit.on_cuda else 60
    streams = [GreedyStream(url, kit.model.name, _PROMPTS[0], tokens) for _ in range(_STREAMS)]
    begun = [stream.wait_tokens(_BEGUN) for stream in streams]
    _paused(url, PERTURBED, send, seconds)
    replies = [stream.result() for stream in streams]
    spans = [reply.weight_versions or [] for reply in replies]
    versions = [[span["version"] for span in each] for each in spans]
    assert all(begun), "a stream did not begin"
    whole = [reply.finish_reason == "length" and len(reply.token_ids) == tokens for reply in replies]
    assert all(whole), f"a stream was lost: {[(each.finish_reason, len(each.token_ids)) for each in replies]}"
    assert all(len(each) == 2 and each[-1] == PERTURBED for each in versions), f"versions of streams: {spans}"
    return {"lost": 0, "tokens": tokens, "weight_versions": spans[0]}


# The ways.


def _from_directory(url: str, perturbed: Path, label: str, seconds: dict[str, float]) -> None:
    with timed(seconds, "update"):
        if label == INITIAL:
            post(url, "/reload_weights")
        else:
            post(url, "/update_weights", {"weight_dir": str(perturbed), "weight_version": label})


def _transfer(url: str, label: str, update: Callable[[], None], seconds: dict[str, float]) -> None:
    with timed(seconds, "start"):
        post(url, "/start_weight_update")
    with timed(seconds, "update"):
        update()
    with timed(seconds, "finish"):
        post(url, "/finish_weight_update", {"weight_version": label})


def _over_ipc(url: str, trainer: Trainer, found: dict[str, Any]) -> Send:
    found["bytes"] = trainer.call("size")
    found["ray"] = "present" if find_spec("ray") else "an empty stand-in"
    described = trainer.call("description")
    post(url, "/init_weight_transfer_engine", {"init_info": {}})

    def send(label: str, seconds: dict[str, float]) -> None:
        def update() -> None:
            pickled = trainer.call("handles", label)
            post(url, "/update_weights", {"update_info": {**described, "ipc_handles_pickled": pickled}})

        _transfer(url, label, update, seconds)

    return send


def _over_nccl(url: str, trainer: Trainer, found: dict[str, Any]) -> Send:
    found["bytes"] = trainer.call("size")
    described = trainer.call("description")
    seconds = found["join_s"] = {}
    with timed(seconds, "join"):
        _join(url, trainer)

    def send(label: str, seconds: dict[str, float]) -> None:
        packed = label == PERTURBED  # back one by one: so both are tried

        def update() -> None:
            trainer.begin("broadcast", label, packed)
            post(url, "/update_weights", {"update_info": {**described, "packed": packed}})
            trainer.result()

        _transfer(url, label, update, seconds)

    return send


def _join(url: str, trainer: Trainer) -> None:
    port = free_port()
    trainer.begin("join", port)
    group = {"master_address": HOST, "master_port": port, "rank_offset": 1, "world_size": 2}
    post(url, "/init_weight_transfer_engine", {"init_info": group}, timeout_s=40)
    trainer.result(timeout_s=20)


def _refused_join(url: str, trainer: Trainer) -> str | None:
    """Return why NCCL refuses a trainer on the engine's own GPU; None if it does not."""
    trainer.call("size")
    try:
        _join(url, trainer)
    except (Refused, RuntimeError) as error:
        return str(error)[-1000:]
    return None


def _by_name(url: str, trainer: Trainer, names: list[str], found: dict[str, Any]) -> Send:
    found["parameters"] = len(names)
    seconds = found["join_s"] = {}
    with timed(seconds, "join"):
        trainer.call("join_named", url, free_port())

    def send(label: str, seconds: dict[str, float]) -> None:
        with timed(seconds, "update"):
            trainer.call("send_named", url, label, names)
        if label == INITIAL:
            trainer.call("close_named", url)
        post(url, "/update_weight_version", {"new_version": label})

    return send
