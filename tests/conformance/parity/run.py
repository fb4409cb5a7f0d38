"""Sends all requests to both servers and judges the responses."""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain

import httpx

from tests.conformance.parity.client import ParityClient
from tests.conformance.parity.compare import Difference, compare
from tests.conformance.parity.consistency import inconsistencies, marked, marked_whole, other_form
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
    if other is not None and otherwise is not None and ours.succeeded and outcome.stable:
        strange = _inconsistencies(request, ours, otherwise)
        if strange:
            strange = marked(strange, _inconsistencies(request, theirs, await servers.theirs.send(other)))
        found += strange
    found = await _contradictions_marked(servers, request, found, (ours, theirs))
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
    async with ParityClient(urls[0], 2 * jobs) as ours, ParityClient(urls[1], 2 * jobs) as theirs:
        return await judge_on(Servers(ours, theirs), requests, thorough, jobs, seen)


async def judge_on(
    servers: Servers, requests: Iterable[Request], thorough: bool, jobs: int, seen: Callable[[ParityOutcome], None]
) -> list[ParityOutcome]:
    """Judge many requests concurrently, and up to twice more by itself what may have differed by chance."""
    numbered = list(enumerate(requests))
    outcomes: dict[int, ParityOutcome] = {}

    async def work(waiting: Iterator[tuple[int, Request]]) -> list[tuple[int, Request]]:
        """Judge requests one after the other; return those that may have differed by chance."""
        by_chance = []
        for position, request in waiting:
            outcomes[position] = outcome = await judge(servers, request, thorough)
            if any(map(_by_chance, outcome.differences)) or (
                outcome.differences and not (thorough or (await judge(servers, request, True)).stable)
            ):
                by_chance.append((position, request))
            else:
                seen(outcome)
        return by_chance

    try:
        together = iter([each for each in numbered if not each[1].alone])
        again = await asyncio.gather(*(work(together) for _ in range(jobs)))
        alone = [each for each in numbered if each[1].alone]
        last = await work(iter([*alone, *chain.from_iterable(again)]))
        for position, _ in await work(iter(last)):
            seen(outcomes[position])
    except httpx.TransportError as error:
        raise ConnectionError(f"a server is gone after {len(outcomes)} requests: {error!r}") from error
    return [outcomes[position] for position in sorted(outcomes)]


async def _contradictions_marked(
    servers: Servers, request: Request, found: list[Difference], streams: tuple[Reply, Reply]
) -> list[Difference]:
    """Return differences, marked where a parser of the reference makes something else of a stream than of its whole."""
    full = other_form(request) if request.streamed and request.name.startswith("parsers") else None
    if full is None or not all(reply.succeeded for reply in streams):
        return found
    if all(explain(request, difference) for difference in found):
        return found
    return marked_whole(request, found, streams, await servers.theirs.send(full))


def _inconsistencies(request: Request, reply: Reply, otherwise: Reply) -> list[Difference]:
    return inconsistencies(request, *((otherwise, reply) if request.streamed else (reply, otherwise)))


def _by_chance(difference: Difference) -> bool:
    """Return whether it may be due to a busy machine, which sends several tokens together: then hardly alone, twice."""
    return difference.path.startswith("stream.keys.") or difference.path.endswith(ALL_AT_ONCE)


async def _nothing() -> None:
    return None


def _shape_only(ours: Reply, theirs: Reply) -> list[Difference]:
    """Compare only whether both are successes."""
    return [] if ours.status == theirs.status else [Difference("status", ours.status, theirs.status)]
