"""Measures attacks: how long each keeps the background client waiting, and how much memory it takes."""

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from tests.adversary.attack import Attack
from tests.adversary.client import ANOTHER_CLIENT, send_attack
from tests.adversary.draws import POOLING
from tests.adversary.fleet import AttackedFleet, attacked_fleet

MOST_SILENCE_S = 0.5
MOST_MEMORY_MB = 256.0
_AFTERWARDS_S = 0.3
_BESIDE_AFTER_S = 3.0
_MOST_WAIT_S = 5.0
"""Of another client's request."""
_ATTACKS_PER_FLEET = 50
_KEPT_MB = 96.0
"""A coordinator that keeps so much after an attack is replaced: the next one could use it and seem small."""
_REPEATS = 2
_SHORT_S = 0.1
"""Shorter silences are not looked at."""


@dataclass(frozen=True)
class Measurement:
    """What one attack did."""

    attack: Attack
    statuses: tuple[int, ...]
    beginning: str
    seconds: float
    silence_s: float
    """The background client's longest silence."""
    blocked_s: float
    """The same, but no longer than the coordinator's CPU time within it: without any, it was the machine's fault."""
    cpu_s: float
    memory_mb: float
    """The coordinator's peak above its memory before."""
    died: bool
    broke: bool
    """Whether the background client's stream ended."""
    refused: bool = False
    """Whether another client's request was not served in time."""
    places: dict[str, int] = field(default_factory=dict)
    """Where the coordinator was while it was slow or large."""

    @property
    def violates(self) -> bool:
        """Whether it cost somebody else too much."""
        return self.excess > 1

    @property
    def excess(self) -> float:
        """What it cost, as a share of what it may cost."""
        if self.died or self.broke or self.refused:
            return float("inf")
        return max(self.blocked_s / MOST_SILENCE_S, self.memory_mb / MOST_MEMORY_MB)


async def measure(attack: Attack, fleet: AttackedFleet, limit_s: float) -> Measurement:
    """Run one attack against a fleet."""
    for step in attack.before:
        await send_attack(fleet.url, step, step.body(fleet.target), limit_s)
    body = attack.body(fleet.embedder if attack.path in POOLING else fleet.target)
    await fleet.settle()
    base, breaks, first = fleet.begin(), fleet.background.breaks, len(fleet.background.arrivals) - 1
    began = time.monotonic()
    attacking = asyncio.create_task(send_attack(fleet.url, attack, body, limit_s))
    refused = attack.beside is not None and not await _is_served(attack.beside, fleet)
    replies = await attacking
    seconds = time.monotonic() - began
    await fleet.settle()
    await asyncio.sleep(_AFTERWARDS_S)
    arrivals = [*fleet.background.arrivals[first:], time.monotonic()]
    silence, blocked = longest_silence(arrivals, fleet.samples)
    return Measurement(
        attack,
        tuple(sorted({reply.status for reply in replies})),
        replies[0].beginning[:300],
        seconds,
        silence,
        blocked,
        _cpu_until(fleet.samples, time.monotonic()) - _cpu_until(fleet.samples, began),
        max(0.0, fleet.peak_mb() - base),
        died=not fleet.is_alive,
        broke=fleet.background.breaks > breaks,
        refused=refused,
        places=dict(fleet.places().most_common(8)),
    )


async def _is_served(request: Attack, fleet: AttackedFleet) -> bool:
    """Return whether another client's request is served while an attack runs."""
    await asyncio.sleep(_BESIDE_AFTER_S)
    replies = await send_attack(fleet.url, request, request.body(fleet.target), _MOST_WAIT_S, ANOTHER_CLIENT)
    return all(reply.status == 200 for reply in replies)


def longest_silence(arrivals: Sequence[float], samples: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return the longest silence, and the longest that the coordinator computed during."""
    silence = blocked = 0.0
    for earlier, later in pairwise(arrivals):
        gap = later - earlier
        silence = max(silence, gap)
        if gap > max(blocked, _SHORT_S):
            blocked = max(blocked, min(gap, _cpu_until(samples, later) - _cpu_until(samples, earlier)))
    return silence, blocked


def _cpu_until(samples: Sequence[tuple[float, float]], moment: float) -> float:
    """Return the seconds of CPU at a moment, between two samples by interpolation."""
    if not samples:
        return 0.0
    before = samples[0]
    for after in samples:
        if after[0] >= moment:
            share = (moment - before[0]) / (after[0] - before[0]) if after[0] > before[0] else 0.0
            return before[1] + max(0.0, share) * (after[1] - before[1])
        before = after
    return before[1]


async def run_attacks(
    attacks: Sequence[Attack], limit_s: float, confirm: bool = True, options: Sequence[str] = ()
) -> AsyncGenerator[Measurement, None]:
    """Run attacks one after the other, on the same processes while they are as new; yield what each did.

    options: of the coordinator.
    """
    waiting = deque(attacks)
    while waiting:
        suspect = None
        async with attacked_fleet(*options) as fleet:
            for _ in range(min(_ATTACKS_PER_FLEET, len(waiting))):
                measurement = await measure(waiting.popleft(), fleet, limit_s)
                if measurement.violates:
                    suspect = measurement
                    break
                yield measurement
                if fleet.memory_mb() - fleet.fresh_mb > _KEPT_MB:
                    break
        if suspect is not None:
            yield await _confirmed(suspect, limit_s, options) if confirm else suspect


async def _confirmed(measurement: Measurement, limit_s: float, options: Sequence[str]) -> Measurement:
    """Repeat an attack alone; return the best of all, by what it exceeds most."""
    for _ in range(_REPEATS):
        async with attacked_fleet(*options) as fleet:
            measurement = min(
                measurement, await measure(measurement.attack, fleet, limit_s), key=lambda each: each.excess
            )
        if not measurement.violates:
            break
    return measurement
