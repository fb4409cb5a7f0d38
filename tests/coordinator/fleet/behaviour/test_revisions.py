"""No reply goes on at a worker of another revision: one with other weights would continue it as another model."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.coordinator.fleet.behaviour.cluster import SEEDED, Cluster, greedy_submit, some_tokens
from tests.workers import Listener, send, until
from tokenwire.coordinator.fleet.desired_state import DesiredStates
from tokenwire.coordinator.fleet.failover.settings import FailoverSettings
from tokenwire.coordinator.fleet.operation_trust import OperationTrust, Unsigned
from tokenwire.coordinator.fleet.request_handle import Placement
from tokenwire.errors import RevisionLost, Unavailable, WorkerLost
from tokenwire.protocol.model_revision import ModelRevision


@pytest.fixture
async def rollout(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Cluster]:
    """One worker of each of two revisions: the weights of a simulated engine are its seed."""
    cluster = Cluster(tmp_path, FailoverSettings(), queue_timeout_s=getattr(request, "param", 20.0))
    cluster.connect()
    await cluster.start("one", step_ms=4, seed=1)
    await cluster.start("two", step_ms=4, seed=2)
    yield cluster
    await cluster.stop()


IMPATIENT = pytest.mark.parametrize("rollout", [0.3], indirect=True, ids=["impatient"])


async def streams_on(cluster: Cluster, name: str, count: int = 4, **sampling: Any) -> list[Listener]:
    """Send requests until so many are on a worker, and wait for their tokens."""
    found: list[Listener] = []
    while len(found) < count:
        handle, (listener,) = cluster.send(**sampling)
        if handle.explain().split(";")[0].endswith(f"{name}.sock"):
            found.append(listener)
    for listener in found:
        await some_tokens(listener)
    return found


async def test_the_oldest_revision_is_the_one_that_was_seen_first(rollout: Cluster) -> None:
    """Wherever its workers are: in a rollout in place the new one is at an old address. What is gone is new again."""
    first, second = rollout.pool.live_revisions("simulated")
    await rollout.lose("one")
    await rollout.start("one", step_ms=4, seed=3)
    third = next(each for each in rollout.pool.live_revisions("simulated") if each not in (first, second))
    assert rollout.pool.live_revisions("simulated") == [second, third]

    await rollout.start("three", step_ms=4, seed=1)
    assert rollout.pool.live_revisions("simulated") == [second, third, first]


@IMPATIENT
@pytest.mark.parametrize("sampling", [{}, SEEDED, {"presence_penalty": 1.0}], ids=["greedy", "seeded", "replayed"])
async def test_no_stream_goes_on_with_other_weights(rollout: Cluster, sampling: dict[str, Any]) -> None:
    """However it would be resumed; once the time to wait for its worker is over, it ends with an error."""
    (undisturbed,) = await streams_on(rollout, "one", 1, **sampling)
    await undisturbed.ended.wait()
    streams = await streams_on(rollout, "one", **sampling)

    await rollout.lose("one")

    for listener in streams:
        await listener.ended.wait()
        assert isinstance(listener.error, WorkerLost | Unavailable)
        assert len(listener.token_ids) < 120
        assert listener.token_ids == undisturbed.token_ids[: len(listener.token_ids)]


async def test_a_stream_waits_for_a_worker_of_its_revision(rollout: Cluster) -> None:
    """One that is back in time, or another one with the same weights."""
    (undisturbed,) = await streams_on(rollout, "one", 1)
    await undisturbed.ended.wait()
    (listener,) = await streams_on(rollout, "one", 1)

    await rollout.lose("one")
    await rollout.start("three", step_ms=4, seed=1)

    await listener.ended.wait()
    assert listener.token_ids == undisturbed.token_ids
    assert listener.resumptions == 1


async def test_a_stream_ends_when_its_worker_returns_with_other_weights(rollout: Cluster) -> None:
    """At once, and with an error that says why."""
    (listener,) = await streams_on(rollout, "one", 1)
    lost = next(each.revision for each in rollout.pool.sessions if each.address.endswith("one.sock"))

    await rollout.lose("one")
    await rollout.start("one", step_ms=4, seed=3)

    await listener.ended.wait()
    assert isinstance(listener.error, RevisionLost)
    assert f"The last worker of simulated in revision {lost}" in listener.error.message


async def test_a_request_without_tokens_is_started_anywhere(tmp_path: Path) -> None:
    """Its client has nothing that other weights would not have begun."""
    cluster = Cluster(tmp_path, FailoverSettings())
    cluster.connect()
    await cluster.start("one", step_ms=60_000, seed=1)
    _, (listener,) = cluster.send()
    await cluster.start("two", step_ms=4, seed=2)

    await cluster.lose("one")

    await listener.ended.wait()
    assert listener.error is None
    assert len(listener.token_ids) == 120
    await cluster.stop()


async def test_a_stream_stays_on_a_draining_worker_without_another_of_its_revision(rollout: Cluster) -> None:
    """It ends there, as if there were no other worker."""
    (listener,) = await streams_on(rollout, "one", 1)
    await rollout.worker("one").drain(10.0)
    await listener.ended.wait()
    assert listener.error is None
    assert len(listener.token_ids) == 120
    assert not listener.resumptions


async def test_weights_of_an_operation_are_those_of_all_workers(rollout: Cluster) -> None:
    """They started with different ones, and continue each other's replies since all have loaded the same."""
    for session in rollout.pool.sessions:
        server = rollout.worker(Path(session.address.removeprefix("unix:")).stem) if session.control else None
        if server is not None:
            await server._controller.load_weights(7, "/usr", "new", True)
    await until(lambda: len({each.revision for each in rollout.pool.sessions if each.control}) == 1)
    (listener,) = await streams_on(rollout, "one", 1)
    (undisturbed,) = await streams_on(rollout, "two", 1)

    await rollout.lose("one")

    await listener.ended.wait()
    await undisturbed.ended.wait()
    assert listener.token_ids == undisturbed.token_ids
    assert listener.resumptions == 1


async def test_weights_of_an_operation_that_is_not_followed_are_those_of_workers_that_have_them(
    tmp_path: Path,
) -> None:
    """Another coordinator ordered it, and one worker did not get it: no reply goes on there."""
    desired = DesiredStates(trust=OperationTrust(unsigned=Unsigned.NOTHING))
    cluster = Cluster(tmp_path, FailoverSettings(), desired=desired)
    cluster.connect()
    for name in ("one", "two", "three"):
        server = await cluster.start(name, step_ms=4, seed=1)
        if name != "two":
            await server._controller.load_weights(7, "/usr", "new", True)
    await until(lambda: served_by(cluster, "one") == served_by(cluster, "three") != served_by(cluster, "two"))
    streams = await streams_on(cluster, "one")
    await cluster.lose("one")

    for listener in streams:
        await listener.ended.wait()
        assert (listener.error, listener.resumptions) == (None, 1)
    (undisturbed,) = await streams_on(cluster, "three", 1)
    await undisturbed.ended.wait()
    assert {tuple(listener.token_ids) for listener in streams} == {tuple(undisturbed.token_ids)}
    await cluster.stop()


def served_by(cluster: Cluster, name: str) -> ModelRevision:
    """Return the revision of a worker."""
    return next(each.revision for each in cluster.pool.sessions if each.address.endswith(f"{name}.sock"))


async def test_a_new_request_goes_to_the_revision_that_it_was_prepared_for(rollout: Cluster) -> None:
    """And to another one with the same tokenizer once that has no worker; with another tokenizer to none."""
    one, two = served_by(rollout, "one"), served_by(rollout, "two")
    for revision in (one, two, one, one):
        send(rollout.pool, greedy_submit(), [Listener()], placement=Placement(revision=revision))
    assert rollout.pool.sequences_by_revision == {("simulated", one.digest): 3, ("simulated", two.digest): 1}

    gone = replace(one, weights="gone")
    send(rollout.pool, greedy_submit(), [Listener()], placement=Placement(revision=gone))
    with pytest.raises(RevisionLost):
        rollout.pool.try_submit("simulated", greedy_submit(), [Listener()], Placement(revision=gone, begun=True))
    other = replace(one, tokenizer="other")
    with pytest.raises(RevisionLost):
        rollout.pool.try_submit("simulated", greedy_submit(), [Listener()], Placement(revision=other))


async def test_requests_for_a_full_revision_do_not_hold_up_others(tmp_path: Path) -> None:
    """Each revision has a queue of its own."""
    cluster = Cluster(tmp_path, FailoverSettings())
    cluster.connect()
    await cluster.start("one", step_ms=4, seed=1, max_num_seqs=1)
    await cluster.start("two", step_ms=4, seed=2)
    full = Placement(revision=served_by(cluster, "one"))
    waiting = [Listener() for _ in range(6)]
    for listener in waiting:
        cluster.failover.submit("simulated", greedy_submit(2000), [listener], full)
    other = Listener()
    cluster.failover.submit("simulated", greedy_submit(), [other], Placement(revision=served_by(cluster, "two")))

    await other.ended.wait()
    assert len(other.token_ids) == 120
    assert not waiting[-1].token_ids
    await cluster.stop()
