"""What requests, workers and tenants have left in the tables of a process, once all requests have ended.

A table that grows with what has come and gone is a leak: each one must be empty then, or within its bound.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sized

from tokenwire.coordinator.app import Core
from tokenwire.coordinator.fleet.admission.queue import AdmissionQueue
from tokenwire.coordinator.fleet.failover.failover import Failover
from tokenwire.coordinator.fleet.pool import WorkerPool
from tokenwire.coordinator.fleet.prefix_index import PrefixIndex
from tokenwire.coordinator.fleet.session import WorkerSession
from tokenwire.coordinator.generation.model_directory import ModelDirectory
from tokenwire.coordinator.history import store as history_store
from tokenwire.coordinator.history.open_store import SharedStore
from tokenwire.coordinator.history.store import MemoryStore
from tokenwire.coordinator.history.turns import Turn
from tokenwire.protocol.model_revision import ModelRevision
from tokenwire.worker.engine.frame_buffer import FrameBuffer
from tokenwire.worker.server import WorkerServer

_MOST_ABORTS = 65_536
_MOST_POISON = 1024
_MOST_SWEPT = 32
"""Removed workers whose bits an index of prefixes may still have."""
_EJECTION_CHECK_S = 2.0
"""Ejections are looked at once a second."""


def coordinator_tables(core: Core, now: float) -> Iterator[str]:
    """Yield what a coordinator keeps though it should not; `now` is the time by its clock."""
    yield from _of_failover(core.failover)
    yield from _of_queue(core.queue)
    for session in core.pool.sessions:
        yield from _of_session(session)
    yield from _kept({f"sequences of {each} with limits": found for each, found in core.freshness._live.items()})
    yield from _kept({"awaited weights": core.freshness._awaited})
    yield from _of_workers(core.pool, now)
    yield from _of_models(core.models, core.pool)
    if running := sum(account._running for account in core.accounts._accounts.values()):
        yield f"counts {running} requests of keys as running"
    if (own := _own_store(core)) is not None:
        yield from history_problems(own)


def worker_tables(server: WorkerServer) -> Iterator[str]:
    """Yield what a worker keeps though it should not."""
    yield from _kept(
        {
            "sequences that its engine is to make steps for": server._stall_detector._open,
            "operations under way": server._controller._changes,
        }
    )
    if len(server._recent_aborts._by_id) > _MOST_ABORTS:
        yield "keeps too many ids of aborted requests"
    for session in server._sessions:
        yield from _kept({"requests in preparation": session._preparing, **_unsent(session.frame_buffer)})


def history_problems(store: MemoryStore) -> Iterator[str]:
    """Yield what is wrong with the sizes and ages of turns in memory."""
    entries = list(store._entries.values())
    if store.size > store._max_bytes:
        yield f"keeps {store.size} bytes of history, and may keep {store._max_bytes}"
    size = len(entries) * history_store._KEY_BYTES + sum(map(history_store._size, store._turns))
    if store.size != size:
        yield f"counts {store.size} bytes of history, and keeps {size}"
    if {turn: held.count for turn, held in store._turns.items()} != _holders(entry.turn for entry in entries):
        yield "keeps turns that nothing refers to"
    sizes = Counter[str]()
    for entry in entries:
        sizes[entry.share] += history_store._KEY_BYTES
    for turn, held in store._turns.items():
        sizes[held.share] += history_store._size(turn)
    if sizes != Counter({share: store._sizes.size_of(share) for share in sizes}):
        yield "counts other shares of history than it keeps"
    expiries = [entry.expires for entry in entries]
    if expiries != sorted(expiries):
        yield "keeps history out of the order of its use"
    # With each use, what has expired by then is evicted.
    if expiries and expiries[0] <= max(expiries) - store._ttl_s:
        yield "keeps history beyond its time"


def _holders(turns: Iterator[Turn]) -> dict[Turn, int]:
    """Count the keys and turns that refer to each turn."""
    holders: Counter[Turn] = Counter()
    for turn in turns:
        for link in turn.chain():
            holders[link] += 1
            if holders[link] > 1:
                break  # what is before it is held by it already
    return dict(holders)


def _kept(tables: Mapping[str, int | Sized]) -> Iterator[str]:
    for what, table in tables.items():
        if count := table if isinstance(table, int) else len(table):
            yield f"keeps {count:d} {what}"


def _own_store(core: Core) -> MemoryStore | None:
    store = core.history._store
    own = store._own if isinstance(store, SharedStore) else store
    return own if isinstance(own, MemoryStore) else None


def _of_failover(failover: Failover) -> Iterator[str]:
    detector, cache = failover._detector, failover.poison_cache
    yield from _kept(
        {
            "sequences in failover": len(failover.live) + len(failover._waiting) + len(failover._lost),
            "draining workers in failover": failover._draining,
            "isolated retries": detector.retrying,
            "deaths of requests that have ended": detector._deaths,
            "sequences for isolated retries": detector._sequences,
        }
    )
    if len(cache.poison) > _MOST_POISON:
        yield f"keeps {len(cache.poison)} poison requests"


def _of_queue(queue: AdmissionQueue) -> Iterator[str]:
    yield from _kept(
        {
            "groups of queued requests": [group for each in queue._queues.values() for group in each._groups],
            "shares in use": [shares for each in queue._queues.values() for shares in each.shares.values() if shares],
            "bytes of queued requests": queue._memory.total,
            "tenants of queued requests": queue._memory._parts,
            "bytes of placed requests": queue.placed_memory.held_bytes,
            "requests of expected models": queue._expected.waiting.total(),
        }
    )


def _of_session(session: WorkerSession) -> Iterator[str]:
    slots, starts = session._slots, session.recent_starts
    slots_taken = set(range(len(slots.listeners)))
    yield from _kept(
        {
            f"slots of {session.address}": slots.open + slots.given_up,
            f"listeners of {session.address}": [slot for slot in range(len(slots.listeners)) if slots.is_open(slot)],
            f"slots that {session.address} may starve": slots.silent,
            f"waits of slots that {session.address} never had": session._starvation._waits.keys() - slots_taken,
            f"requests that {session.address} has just started": starts._started,
            f"prompts of {session.address}": session.workload.prompts.tokens,
            f"tokens of prompts of {session.address}": session.workload.prompts.total,
        }
    )
    if starts._prefilled:
        yield f"keeps requests that {session.address} started long ago"


def _of_workers(pool: WorkerPool, now: float) -> Iterator[str]:
    addresses = {session.address for session in pool.sessions}
    outliers, reconciler = pool._outliers, pool._reconciler
    served = {(session.model_name, session.revision.digest) for session in pool.sessions}
    yield from _kept(
        {
            "removals of workers": [each for each in pool._members.values() if each.removal is not None],
            "reconciliations": reconciler._tasks,
            "errors of reconciliations": reconciler._errors,
            "workers set aside": reconciler._aside,
            "sequences by revisions that are gone": pool.sequences_by_revision.keys() - served,
            "paces of workers that are gone": outliers._paces.keys() - addresses,
            "statistics of models that are gone": pool.stats_by_model.keys() - {model for model, _ in served},
        }
    )
    for address, ejections in outliers._ejections.items():
        most_s = outliers.settings.ejection_time_s * ejections.times + _EJECTION_CHECK_S
        if now - ejections.until > most_s:
            yield f"keeps an ejection of {address} that ended {now - ejections.until:.1f} s ago"
    yield from prefix_problems(pool._router._prefixes)


def prefix_problems(index: PrefixIndex) -> Iterator[str]:
    """Yield what is wrong with the bits by which an index of prefixes knows workers."""
    live = 0
    for bit in index._bits.values():
        live |= bit
    if live != index._live or live & index._removed:
        yield "has bits of workers in its index that no worker has, or two have"
    if index._removed.bit_count() > _MOST_SWEPT:
        yield f"keeps bits of {index._removed.bit_count()} removed workers in its index"
    if any(bits & ~(live | index._removed) for blocks in (index._young, index._old) for bits in blocks.values()):
        yield "keeps prefixes of workers that it does not know"


def _of_models(models: ModelDirectory, pool: WorkerPool) -> Iterator[str]:
    announced = {ModelRevision.of(session.model) for session in pool.sessions if session.model is not None}
    revisions = {revision for known in models._revisions.values() for revision in known}
    used = {id(model) for known in models._revisions.values() for model in known.values()}
    yield from _kept(
        {
            "revisions that no worker has": revisions - announced,
            "models without workers": models._absent,
            "models that no revision is": [each for each in models._models.values() if id(each) not in used],
            "announcements of revisions that are gone": [
                each.revision for each in models._prepared.values() if each.revision not in revisions
            ],
        }
    )


def _unsent(buffer: FrameBuffer) -> Mapping[str, Sized]:
    return {
        "unsent tokens": buffer._tokens,
        "unsent ends": buffer._finishes,
        "unsent prefills": buffer._prefills,
        "unsent log-probabilities": buffer._logprobs,
    }
