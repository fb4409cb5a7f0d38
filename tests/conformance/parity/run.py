"""Sends all requests to both servers and judges the responses."""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import httpx

from tests.conformance.parity.client import ParityClient
from tests.conformance.parity.compare import Difference, compare
from tests.conformance.parity.consistency import inconsistencies, marked, other_form
from tests.conformance.parity.explained import Explanation, explain
from tests.conformance.parity.progress import ALL_AT_ONCE
from tests.conformance.parity.request import Reply, Request

EQUAL, EXPLAINED, DIFFERENT, UNSTABLE = "equal", "explained", "different", "unstable"


@dataclass
class ParityOutcome:
    """The result of one request on both servers."""

    request: Request
    ours: Reply
    theirs: Reply
    differences: list[Difference] = field(default_factory=list)
    explained: list[tuple[Explanation, Difference]] = field(default_factory=list)
    stable: bool = True
    """Whether the reference responded alike twice."""

    @property
    def verdict(self) -> str:
        """The outcome as one word."""
        if self.differences:
            return DIFFERENT
        if not self.stable:
            return UNSTABLE
        return EXPLAINED if self.explained else EQUAL


@dataclass(frozen=True)
class Servers:
    """Both servers, as clients of them."""

    ours: ParityClient
    theirs: ParityClient


async def judge(servers: Servers, request: Request, thorough: bool) -> ParityOutcome:
    """Compare the responses to one request; `thorough`: the reference gets it twice, and tokenwire in both forms."""
    other = other_form(request) if thorough else None
    ours, theirs, again, otherwise = await asyncio.gather(
        servers.ours.send(request),
        servers.theirs.send(request),
        servers.theirs.send(request) if thorough else _nothing(),
        servers.ours.send(other) if other else _nothing(),
    )
    outcome = ParityOutcome(request, ours, theirs)
    if again is not None:
        outcome.stable = all(explain(request, moved) or _by_chance(moved) for moved in compare(request, again, theirs))
    found = compare(request, ours, theirs) if outcome.stable else _shape_only(ours, theirs)
    if any(_by_chance(difference) and explain(request, difference) is None for difference in found):
        outcome.ours, outcome.theirs = ours, theirs = await asyncio.gather(
            servers.ours.send(request), servers.theirs.send(request)
        )
        found = compare(request, ours, theirs)
    if other is not None and otherwise is not None and ours.succeeded and outcome.stable:
        strange = _inconsistencies(request, ours, otherwise)
        if strange:
            strange = marked(strange, _inconsistencies(request, theirs, await servers.theirs.send(other)))
        found += strange
    for difference in found:
        explanation = explain(request, difference)
        if explanation is None:
            outcome.differences.append(difference)
        else:
            outcome.explained.append((explanation, difference))
    return outcome


async def judge_all(
    urls: tuple[str, str], requests: Iterable[Request], thorough: bool, jobs: int, seen: Callable[[ParityOutcome], None]
) -> list[ParityOutcome]:
    """Judge many requests concurrently; `seen` is called with each outcome."""
    numbered = list(enumerate(requests))
    outcomes: dict[int, ParityOutcome] = {}

    async def work(servers: Servers, waiting: Iterator[tuple[int, Request]]) -> None:
        for position, request in waiting:
            outcome = await judge(servers, request, thorough)
            outcomes[position] = outcome
            seen(outcome)

    async with ParityClient(urls[0], 2 * jobs) as ours, ParityClient(urls[1], 2 * jobs) as theirs:
        servers = Servers(ours, theirs)
        try:
            together = iter([each for each in numbered if not each[1].alone])
            await asyncio.gather(*(work(servers, together) for _ in range(jobs)))
            await work(servers, iter([each for each in numbered if each[1].alone]))
        except httpx.TransportError as error:
            raise ConnectionError(f"a server is gone after {len(outcomes)} requests: {error!r}") from error
    return [outcomes[position] for position in sorted(outcomes)]


def _inconsistencies(request: Request, reply: Reply, otherwise: Reply) -> list[Difference]:
    return inconsistencies(request, *((otherwise, reply) if request.streamed else (reply, otherwise)))


def _by_chance(difference: Difference) -> bool:
    """Return whether it may be due to a busy machine, which sends a few tokens together: then hardly twice."""
    return difference.path.startswith("stream.keys.") or difference.path.endswith(ALL_AT_ONCE)


async def _nothing() -> None:
    return None


def _shape_only(ours: Reply, theirs: Reply) -> list[Difference]:
    """Compare only whether both are successes."""
    return [] if ours.status == theirs.status else [Difference("status", ours.status, theirs.status)]
