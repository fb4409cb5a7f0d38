"""The faults: what fails, under how many streams, and the limit for the longest gap."""

import asyncio
import itertools
import math
import statistics
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.faults.bodies import PROMPTS, batch, chat_with_picture, completion
from tests.faults.client import ClientRecord
from tests.faults.cluster import STEP_MS, FaultyCluster, Layout, running_cluster
from tests.faults.hostile import (
    close_each,
    fail_each,
    garble_metrics,
    hide_identity,
    hold,
    only_heartbeats,
    only_heartbeats_alone,
    order_falsely,
    pad,
    send_bursts,
    spend,
    take_all,
)
from tests.faults.strikes import (
    AWAY_S,
    POISON,
    delay,
    exchange,
    flap,
    freeze,
    halve,
    jump,
    kill,
    kill_pooling,
    kill_prefilling,
    kill_processing,
    leave_nobody,
    poison,
    roll,
    stop_coordinator,
    swallow,
    terminate,
    wait,
)

Strike = Callable[[FaultyCluster], Awaitable[None]]

TOKENS = 250
_INTERVAL_S = 0.05


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault injected while streams run."""

    name: str
    strike: Strike
    gap_s: float
    """The longest time for which a client may get nothing."""
    streams: int = 200
    """0: only requests that join."""
    layout: Layout = field(default_factory=Layout)
    sampling: dict[str, Any] = field(default_factory=dict)
    """How the streams sample; greedy unless set."""
    request: Callable[[int, int], dict[str, Any]] = completion
    """The body of the request with a number, of so many tokens."""
    quiet: bool = False
    """Whether it strikes when the streams have ended; only requests that join meet it."""


@dataclass(frozen=True, slots=True)
class Gaps:
    """The gaps between tokens of all streams that ended in one interval."""

    at_s: float
    """The start of the interval, from the fault on; negative before it."""
    median_ms: float
    longest_ms: float


@dataclass(frozen=True, slots=True)
class FaultOutcome:
    """The results of the streams."""

    fault: Fault
    streams: int
    lost: int
    corrupted: int
    longest_gap_s: float
    gaps: tuple[Gaps, ...]
    problems: tuple[str, ...]

    @property
    def holds(self) -> bool:
        """Whether the results are within the budget."""
        return not self.lost and not self.corrupted and self.longest_gap_s <= self.fault.gap_s


async def outcome_of(fault: Fault, folder: Path, streams: int | None = None, tokens: int = TOKENS) -> FaultOutcome:
    """Inject a fault during streams and compare these to uninterrupted ones."""
    asked = (streams or fault.streams) if fault.streams else 0
    count = PROMPTS * (asked // PROMPTS)  # so that those that join have the next numbers

    def body(number: int) -> dict[str, Any]:
        return fault.request(number, tokens) | fault.sampling

    async with running_cluster(folder, fault.layout, body) as cluster:
        running = [ClientRecord(body(number)) for number in range(count)]
        tasks = cluster.begin(running)
        await asyncio.gather(*(stream.began.wait() for stream in running))
        await (asyncio.wait(tasks) if fault.quiet else asyncio.sleep(10 * STEP_MS / 1000))
        struck = time.monotonic()
        await fault.strike(cluster)
        await asyncio.gather(*tasks)
        running += cluster.joined
        # Afterwards and not before: faults that strike by number of tokens must meet the streams.
        undisturbed = []
        for numbers in cluster.revisions():
            if len(numbers) < len(cluster.workers):
                await cluster.show_only(numbers)
            undisturbed.append([ClientRecord(body(number)) for number in range(PROMPTS)])
            await asyncio.gather(*cluster.begin(undisturbed[-1]))
    return _compare(fault, running, undisturbed, struck)


def _compare(
    fault: Fault, running: list[ClientRecord], undisturbed: list[list[ClientRecord]], struck: float
) -> FaultOutcome:
    """Compare streams to uninterrupted ones of any revision."""
    problems = [stream.problem for stream in (*running, *itertools.chain(*undisturbed)) if stream.problem]
    complete = [(number, stream) for number, stream in enumerate(running) if not stream.problem]
    corrupted = sum(
        all(stream.output != streams[number % PROMPTS].output for streams in undisturbed) for number, stream in complete
    )
    return FaultOutcome(
        fault,
        len(running),
        lost=len(running) - len(complete),
        corrupted=corrupted,
        longest_gap_s=max((stream.longest_gap_s for _, stream in complete), default=0.0),
        gaps=gaps_around(struck, [stream.arrivals for _, stream in complete]),
        problems=tuple(dict.fromkeys(problems)),
    )


def gaps_around(struck: float, streams: Iterable[Sequence[float]]) -> tuple[Gaps, ...]:
    """Group the gaps between arrivals by when they ended, in seconds from a fault on."""
    intervals = defaultdict(list)
    for arrivals in streams:
        for earlier, later in itertools.pairwise(arrivals):
            intervals[math.floor((later - struck) / _INTERVAL_S)].append(1000 * (later - earlier))
    return tuple(
        Gaps(round(number * _INTERVAL_S, 3), round(statistics.median(gaps), 1), round(max(gaps), 1))
        for number, gaps in sorted(intervals.items())
    )


def _after(tokens: int, kind: str, options: str = "") -> tuple[str, ...]:
    return ("--sim-fault", f"{kind}@tokens={tokens}{options}")


_DIES_OF_POISON = ("--sim-fault", f"exit@prompt={ord(POISON)}")

# Requests whose tokens are no function of the ids so far: only a run from the start repeats them.
_GENERATORS = ("--sim-seeds", "generator")
_SEEDED = {"temperature": 0.8, "seed": 7}
_PENALIZED = {"presence_penalty": 0.5}
_REPLAY_S = 6.0
"""A replay makes all tokens again that a stream has."""

_WAIT_S = 10.0
"""From the request on, where the fault comes before the first token: with the work that was lost."""
_PICTURE_TOKENS = 1500


def _pictures(*options: str) -> Layout:
    return Layout(worker_options=("--sim-image-tokens", str(_PICTURE_TOKENS), *options))


_POOLING = Layout(worker_options=("--sim-embedding-width", "32"))

FAULTS = (
    Fault("kill -9 of one of three workers", kill, 1.5, streams=300),
    Fault(
        "kill -9 during a rollout: two workers of each of two revisions",
        kill,
        1.5,
        layout=Layout(workers=4, listed=True, rollout=True),
    ),
    Fault("kill -9, seeded", kill, _REPLAY_S, layout=Layout(worker_options=_GENERATORS), sampling=_SEEDED),
    Fault(
        "kill -9, pictures that are processed",
        kill_processing,
        _WAIT_S,
        streams=0,
        layout=_pictures("--sim-image-ms", "1000"),
        request=chat_with_picture,
    ),
    Fault(
        "kill -9, pictures in prefill",
        kill_prefilling,
        _WAIT_S,
        streams=0,
        layout=_pictures("--sim-prefill-rate", "3000"),
        request=chat_with_picture,
    ),
    Fault(
        "kill -9, pictures in mid-reply",
        kill,
        3.0,
        layout=_pictures("--sim-image-ms", "100", "--sim-prefill-rate", "0"),
        request=chat_with_picture,
    ),
    Fault("kill -9, batches to embed", kill_pooling, _WAIT_S, streams=0, layout=_POOLING, request=batch),
    Fault("worker out of memory (exit 137)", wait, 1.5, layout=Layout(first_worker_options=_after(2500, "exit"))),
    Fault("engine crash", wait, 1.5, layout=Layout(first_worker_options=_after(2500, "crash"))),
    Fault(
        "engine crash, penalties",
        wait,
        _REPLAY_S,
        layout=Layout(worker_options=_GENERATORS, first_worker_options=_after(2500, "crash")),
        sampling=_PENALIZED,
    ),
    Fault("engine hang", wait, 6.0, layout=Layout(first_worker_options=_after(4000, "hang"))),
    Fault("engine 30 times slower", wait, 3.0, layout=Layout(first_worker_options=_after(4000, "slow", ":factor=30"))),
    Fault("SIGSTOP of a worker", freeze, 6.0),
    Fault("SIGTERM of a worker", terminate, 1.5),
    Fault("SIGTERM of a worker, seeded", terminate, 1.5, layout=Layout(worker_options=_GENERATORS), sampling=_SEEDED),
    Fault("network black hole", swallow, 6.0, layout=Layout(proxied=True)),
    Fault("half-open connections", halve, 6.0, layout=Layout(proxied=True)),
    Fault("network delay and loss", delay, 1.5, layout=Layout(proxied=True)),
    Fault("rolling restart of all workers", roll, 1.5, streams=300),
    Fault("the only worker is away for 30 s", leave_nobody, AWAY_S + 10, layout=Layout(workers=1)),
    Fault("SIGTERM of the coordinator", stop_coordinator, 1.5),
    Fault("a request that kills workers", poison, 1.5, layout=Layout(workers=4, worker_options=_DIES_OF_POISON)),
    Fault("discovery flaps", flap, 1.5, layout=Layout(listed=True)),
    Fault("certificates and authority change", exchange, 1.5, layout=Layout(secured=True)),
    Fault("clocks jump by a day", jump, 1.5, layout=Layout(faked_clock=True)),
    Fault("hostile worker: only heartbeats", only_heartbeats, 40.0, layout=Layout(listed=True)),
    Fault(
        "hostile worker: only heartbeats, and nobody else generates",
        only_heartbeats_alone,
        40.0,
        streams=20,
        layout=Layout(listed=True),
        quiet=True,
    ),
    Fault("hostile worker: keeps requests, and says that it is paused", hold, 40.0, layout=Layout(listed=True)),
    Fault("hostile workers: two that close with each request", close_each, 3.0, layout=Layout(listed=True)),
    Fault("hostile workers: two that fail each request at once", fail_each, 1.5, layout=Layout(listed=True)),
    Fault("hostile worker: a few quick tokens in nine seconds", send_bursts, 40.0, layout=Layout(listed=True)),
    Fault("hostile worker: a token a second, and empty frames between", pad, 6.0, layout=Layout(listed=True)),
    Fault(
        "hostile worker: leaves out what it is, and another one is killed",
        hide_identity,
        1.5,
        layout=Layout(listed=True),
    ),
    Fault(
        "hostile workers: pause, weights and epoch that nobody ordered",
        order_falsely,
        3.0,
        layout=Layout(listed=True, commands=True),
    ),
    Fault("hostile workers: metrics that cannot be parsed", garble_metrics, 1.5, layout=Layout(listed=True)),
    Fault("hostile client: expensive requests", spend, 1.5),
    Fault("greedy client: n=16,384 before a small one", take_all, 6.0),
)
