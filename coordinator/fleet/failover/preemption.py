"""Chooses sequences that are taken back from workers, so that another tenant starts: it waits, and has less."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from tokenwire.coordinator.fleet.failover.sequence import ResumableSequence
from tokenwire.coordinator.fleet.outliers import PREFILL_S_PER_TOKEN
from tokenwire.coordinator.fleet.request_handle import LateTenant

if TYPE_CHECKING:
    from tokenwire.coordinator.fleet.session import WorkerSession

MOST_AT_ONCE = 8
"""Places that are freed for one tenant at a time; the next ones follow a second later."""


def late_in_engines(live: Iterable[ResumableSequence], after_s: float) -> list[LateTenant]:
    """Return whose sequences wait in the engines of workers, behind others, with no token for so long."""
    late: dict[tuple[WorkerSession, str, int], LateTenant] = {}
    now = time.monotonic()
    for sequence in live:
        session = sequence.session
        if session is None or sequence.gained or not session.workload.load.waiting:
            continue
        own_tokens = len(sequence.request.submission.prompt_token_ids)  # those of others are what it waits for
        if now - sequence.placed_at > after_s + own_tokens * PREFILL_S_PER_TOKEN:
            placement, priority = sequence.request.placement, sequence.request.submission.priority
            tenant = LateTenant(placement, priority, 1, [session], lambda other: True)
            late.setdefault((session, placement.tenant, priority), tenant)
    return [*late.values()]


def choose(
    late: LateTenant, live: Iterable[ResumableSequence], is_movable: Callable[[ResumableSequence], bool]
) -> list[ResumableSequence]:
    """Return which sequences to take back for a tenant: of others that have more, by their weights, even without them.

    Those with the fewest tokens go, since they are the cheapest to compute again, and with them those of their tenants
    that wait in the same engines: else these would come next. If none has tokens, the newest that wait go.
    """
    placed = [each for each in live if each.session in late.workers]
    held = Counter(each.request.placement.tenant for each in placed)
    weights = {each.request.placement.tenant: each.request.placement.weight for each in placed}
    candidates = [each for each in placed if _goes_after(each, late) and is_movable(each)]
    running = sorted((each for each in candidates if each.gained), key=_recomputed)
    waiting = [each for each in candidates if not each.gained]
    taken: list[ResumableSequence] = []
    left = running + waiting[::-1]
    for _ in range(min(late.sequences, MOST_AT_ONCE)):
        own = (held[late.placement.tenant] + 1) / late.placement.weight
        tenants = {each.request.placement.tenant for each in left}
        richer = [tenant for tenant in tenants if (held[tenant] - 1) / weights[tenant] >= own]
        if not richer:
            break
        richest = max(richer, key=lambda tenant: held[tenant] / weights[tenant])
        taken.append(next(each for each in left if each.request.placement.tenant == richest))
        left.remove(taken[-1])
        held[richest] -= 1
        held[late.placement.tenant] += 1
    return taken + _waiting_behind(taken, waiting, placed)


def _goes_after(sequence: ResumableSequence, late: LateTenant) -> bool:
    """Return whether a sequence, once it is queued, would wait for what is late."""
    request = sequence.request
    if request.placement.tenant == late.placement.tenant or request.submission.priority < late.priority:
        return False
    return request.submission.priority > late.priority or late.is_behind(request.placement.tenant)


def _recomputed(sequence: ResumableSequence) -> int:
    return len(sequence.request.submission.prompt_token_ids) + len(sequence.token_ids)


def _waiting_behind(
    taken: Sequence[ResumableSequence], waiting: Sequence[ResumableSequence], placed: Sequence[ResumableSequence]
) -> list[ResumableSequence]:
    """Return what waits of the same tenants in the same engines: of each as many as it says that wait, the newest.

    The others are computed already. What waits of other tenants, or is taken, counts among those that wait.
    """
    found: list[ResumableSequence] = []
    for session in dict.fromkeys(each.session for each in taken):
        tenants = {each.request.placement.tenant for each in taken if each.session is session}
        own = [
            each
            for each in waiting
            if each.session is session and each.request.placement.tenant in tenants and each not in taken
        ]
        others = sum(each.session is session and not each.gained for each in placed) - len(own)
        count = 0 if session is None else max(0, session.workload.load.waiting - others)
        found += own[len(own) - count :] if count < len(own) else own
    return found
