"""Single requests on all servers in turn: short rounds, so that what else the machine does meets all of them alike."""

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import uvloop
from tokenizers import Tokenizer

from benchmarks.processes import measured
from benchmarks.standard.request_cases import BEHIND_CASES, CASES, FLEET_STREAMS, Case, Figures, Target, Texts
from benchmarks.standard.servers import FRONT_ENDS, SERVERS, Simulation
from gpu.kit import Kit
from gpu.servers import ServerProcess, started
from tests.processes import wait_routable

STEP_MS, BEHIND_STEP_MS = 20.0, 4.0
MAX_MODEL_LEN = 32_768
FLEET_STEP_MS = 80.0
FLEETS = {"1 worker": 1, "24 workers": 24}

Rounds = dict[str, dict[str, list[Figures]]]
"""By case and by server, one entry for each round."""


def measure(out: Path, servers: Sequence[str], rounds: int, deadline: float, say: Callable[[str], None]) -> Rounds:
    """Start servers at once, and measure them in turn. Rounds that have not begun at the deadline are left out."""
    kit = Kit.create("cpu", out, small=True)
    texts = Texts(Tokenizer.from_file(str(kit.model.folder / "tokenizer.json")))
    found: Rounds = {}
    for cases, step_ms, share in ((CASES, STEP_MS, 0.75), (BEHIND_CASES, BEHIND_STEP_MS, 1.0)):
        ends = time.monotonic() + share * (deadline - time.monotonic())
        say(f"starting {', '.join(servers)}, with steps of {step_ms:g} ms")
        with _targets(kit, Simulation.create(kit, step_ms, MAX_MODEL_LEN), servers) as targets:
            for number in range(-1, rounds):
                if number < 1 or time.monotonic() < ends:
                    say(f"round {number + 1} of {rounds}" if number >= 0 else "a round that is not counted")
                    done = uvloop.run(_round(cases, targets, texts, number))
                    if number >= 0:
                        _add(found, done)
    return found


def _add(found: Rounds, done: Mapping[str, Mapping[str, Figures]]) -> None:
    for case, servers in done.items():
        for server, figures in servers.items():
            rounded = {name: round(value, 4) for name, value in figures.items()}
            found.setdefault(case, {}).setdefault(server, []).append(rounded)


async def _round(
    cases: Mapping[str, Case], targets: Mapping[str, Target], texts: Texts, number: int
) -> dict[str, dict[str, Figures]]:
    """Measure each case on its servers, in an order that each round turns round."""
    found: dict[str, dict[str, Figures]] = {}
    for name, case in cases.items():
        for server in case.servers[:: -1 if number % 2 else 1]:
            if server not in targets:
                continue
            found.setdefault(name, {})[server] = await case.measure(targets[server], texts, f"{name}.{number}")
            await asyncio.sleep(0.05)  # what follows a reply is the reply's
    return found


@contextmanager
def _targets(kit: Kit, engine: Simulation, servers: Sequence[str]) -> Iterator[Mapping[str, Target]]:
    """Run all servers at once: idle ones use next to nothing."""
    with ExitStack() as stack:
        targets = {"tokenizers": Target("tokenizers", "", "", ())}
        for name in servers:
            contender = stack.enter_context(SERVERS[name](kit, engine))
            pids = [server.process.popen.pid for part, server in contender.servers.items() if part in FRONT_ENDS]
            tokenize = "/v1/tokenize" if name == "smg" else "/tokenize"
            targets[name] = Target(name, contender.url, kit.model.name, pids, tokenize)
        if engine.step_ms == STEP_MS:
            targets |= {name: stack.enter_context(_fleet(kit, engine.script, name)) for name in FLEETS}
            for kind in ("uvicorn", "writes"):
                server = stack.enter_context(measured([kind, str(engine.step_ms)], module="benchmarks.floor"))
                url = server.wait_for(r"ready: (http://\S+)")[1]
                targets[kind] = Target(kind, url, kit.model.name, [server.pid])
        yield targets


@contextmanager
def _fleet(kit: Kit, script: Path, name: str) -> Iterator[Target]:
    """Run tokenwire with one or many workers, all in one process."""
    count = FLEETS[name]
    sizes = (count, FLEET_STEP_MS, FLEET_STREAMS)
    arguments = [*map(str, sizes), str(kit.model.folder), kit.model.name, str(script)]
    log = kit.out / f"{count}-workers.log"
    process = ServerProcess("benchmarks.many_workers", arguments, log, kit.environment(), kit.python)
    with (
        started(process, r"ready: (.+)", 300) as workers,
        kit.coordinator(workers.address.split(), name=f"coordinator-{count}") as coordinator,
    ):
        wait_routable(coordinator.address, count)
        yield Target(name, coordinator.address, kit.model.name, [coordinator.process.popen.pid])
