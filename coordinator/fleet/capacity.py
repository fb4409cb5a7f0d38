"""How many sequences a worker could begin at once, as far as its session can tell."""

from collections.abc import Sequence

from tokenwire.coordinator.fleet.session import WorkerSession

UNKNOWN = 1_000_000
"""The room of a worker that does not say how many sequences it runs at a time."""
_LEAD_SHARE = 16
_LEAST_LEAD = 2
_PROBATION = 8
"""Sequences that a worker gets after a loss until it has made a token."""
_FULL_CACHE = 0.9


def capacity(session: WorkerSession) -> int:
    """Return how many sequences the worker runs at a time; 0 where nothing is known of it."""
    if session.model is None:
        return 0
    return session.model.max_num_seqs or UNKNOWN


def free_capacity(session: WorkerSession) -> int:
    """Return how many more sequences may be sent to a ready worker; none or less: it has enough to do.

    A few more than it runs at a time: the lead, with which it fills a place in the step that freed it.
    """
    seats = capacity(session)
    if session.breaker.half_open:
        # It was lost: a few requests show whether it is well.
        return min(seats, _PROBATION) - session.workload.sequences
    if seats == UNKNOWN:
        return UNKNOWN
    lead = max(_LEAST_LEAD, seats // _LEAD_SHARE)
    load, room = session.workload.load, seats + lead - session.workload.sequences
    if session.open_slots and load.waiting and load.kv_cache_usage >= _FULL_CACHE:
        # Memory, not seats, is what this worker is out of.
        room = min(room, lead - load.waiting - session.workload.unseen)
    return room


def with_capacity(candidates: Sequence[WorkerSession], sequences: int) -> Sequence[WorkerSession]:
    """Leave out workers without room, as long as others have some; best those that have enough."""
    rooms = {session: free_capacity(session) for session in candidates}
    enough = [session for session, room in rooms.items() if room >= sequences]
    return enough or [session for session, room in rooms.items() if room > 0] or candidates
