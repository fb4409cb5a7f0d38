"""Failover on real sockets: workers with simulated engines are stopped while they run requests."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.coordinator.fleet.behaviour.cluster import NAMES, SEEDED, Cluster, greedy_submit, some_tokens
from tests.workers import Listener, accept, until
from tokenwire.coordinator.fleet.failover.failover import Failover
from tokenwire.coordinator.fleet.failover.settings import FailoverSettings
from tokenwire.coordinator.fleet.pool import WorkerPool
from tokenwire.coordinator.fleet.request_handle import NEW, LateTenant, Placement, SubmissionHandle
from tokenwire.coordinator.fleet.session import WorkerSession
from tokenwire.coordinator.fleet.slots import SlotListener
from tokenwire.coordinator.fleet.submission import Submission
from tokenwire.errors import EngineFailed, TokenwireError, Unavailable, WorkerLost
from tokenwire.v1 import inference_pb2 as pb

PENALIZED: dict[str, Any] = {"temperature": 1.0, "seed": 7, "presence_penalty": 1.0}
SCORED: dict[str, Any] = {"logprobs": 2, "prompt_logprobs": 1}
MINIMAL: dict[str, Any] = {"min_tokens": 110, "stop_token_ids": list(range(97, 123))}


@pytest.mark.parametrize("cluster", [{}, {"seeds": "generator"}], indirect=True, ids=["positional", "generators"])
@pytest.mark.parametrize("sampling", [{}, SEEDED, PENALIZED, SCORED, {**SEEDED, **SCORED}, MINIMAL])
async def test_a_lost_request_continues_as_if_nothing_had_happened(cluster: Cluster, sampling: dict[str, Any]) -> None:
    """Tokens, rows, usage and finish are those of an undisturbed run, however it is resumed."""
    _, (full,) = cluster.send(**sampling)
    await full.ended.wait()
    _, (listener,) = cluster.send(**sampling)
    await some_tokens(listener)

    await cluster.lose(await cluster.holder())

    await listener.ended.wait()
    assert listener.error is None
    assert listener.token_ids == full.token_ids
    assert listener.finish is not None
    assert full.finish is not None
    assert listener.finish.reason == full.finish.reason
    assert [_ids_and_logprobs(rows) for rows in _split(listener)] == [_ids_and_logprobs(rows) for rows in _split(full)]
    assert len(listener.prefills) == 1
    assert listener.prefills[0].prompt_logprobs == full.prefills[0].prompt_logprobs
    assert listener.steps_after_end == 0
    assert listener.resumptions == 1
    positional = cluster.pool.capabilities("simulated").positional_seeds
    replayed = "presence_penalty" in sampling or ("seed" in sampling and not positional)
    assert (cluster.failover.stats.replayed, cluster.failover.stats.resumed) == (replayed, not replayed)


def _split(listener: Listener) -> list[pb.LogprobRows]:
    """Return rows one by one."""
    split = []
    for rows in listener.rows:
        for row in range(len(rows.sampled_ranks)):
            cut = slice(row * rows.width, (row + 1) * rows.width)
            split.append(pb.LogprobRows(width=rows.width, token_ids=rows.token_ids[cut], logprobs=rows.logprobs[cut]))
    return split


def _ids_and_logprobs(rows: pb.LogprobRows) -> tuple[list[int], list[float]]:
    return list(rows.token_ids), list(rows.logprobs)


async def test_each_sequence_of_a_request_is_resumed_with_its_own_seed(cluster: Cluster) -> None:
    """Sequence i of a seeded request has seed + i, also when it is resumed alone."""
    wholes = [await cluster.undisturbed(temperature=1.0, seed=7 + i) for i in range(3)]
    _, listeners = cluster.send(n=3, **SEEDED)
    await some_tokens(listeners[2])

    await cluster.lose(await cluster.holder())

    for listener in listeners:
        await listener.ended.wait()
    assert [listener.token_ids for listener in listeners] == wholes


async def test_a_sequence_that_cannot_be_resumed_fails_alone(cluster: Cluster) -> None:
    """Whatever the reason: the others lost with it are resumed."""
    _, listeners = cluster.send(n=2, temperature=1.0, seed=2**63 - 1)
    await some_tokens(listeners[1])
    holder = await cluster.holder()
    others: list[Listener] = []
    while len(others) < 2:
        handle, (listener,) = cluster.send()
        if handle.explain().split(";")[0].endswith(f"{holder}.sock"):
            others.append(listener)
    await some_tokens(others[-1])

    await cluster.lose(holder)

    for listener in (*listeners, *others):
        await listener.ended.wait()
    assert isinstance(listeners[1].error, EngineFailed)
    assert [listener.error for listener in (listeners[0], *others)] == [None] * 3
    assert {len(listener.token_ids) for listener in (listeners[0], *others)} == {120}


async def test_a_request_waits_for_the_only_worker(cluster: Cluster) -> None:
    """With no worker left it is resumed when one is back, several times if necessary."""
    full = await cluster.undisturbed()
    _, (listener,) = cluster.send()
    for count in (10, 20):
        await some_tokens(listener, count)
        for name in NAMES[:2]:
            await cluster.lose(name)
        await until(lambda: not cluster.pool.is_ready())
        for name in NAMES[:2]:
            await cluster.start(name, step_ms=4)

    await listener.ended.wait()
    assert listener.token_ids == full


async def test_waiting_for_a_worker_times_out(tmp_path: Path) -> None:
    """Without another worker the request fails with the original error."""
    cluster = Cluster(tmp_path, FailoverSettings(), queue_timeout_s=0.1)
    cluster.connect()
    await cluster.start("one", step_ms=4)
    _, (listener,) = cluster.send()
    await some_tokens(listener)

    await cluster.lose("one")

    await listener.ended.wait()
    assert isinstance(listener.error, Unavailable)
    assert "one.sock" in listener.error.message
    await cluster.stop()


async def test_without_attempts_a_loss_is_an_error(tmp_path: Path) -> None:
    """Failover can be disabled."""
    cluster = Cluster(tmp_path, FailoverSettings(attempts=0))
    cluster.connect()
    for name in NAMES[:2]:
        await cluster.start(name, step_ms=4)
    _, (listener,) = cluster.send()
    await some_tokens(listener)

    await cluster.lose(await cluster.holder())

    await listener.ended.wait()
    assert isinstance(listener.error, WorkerLost)
    await cluster.stop()


async def test_an_aborted_request_is_not_resumed(cluster: Cluster) -> None:
    """Its client disconnected while the worker died."""
    handle, (listener,) = cluster.send()
    await some_tokens(listener)
    await cluster.lose(await cluster.holder())
    handle.abort()

    await until(lambda: cluster.pool.open_slots == 0)
    assert listener.steps_after_end == 0
    assert listener.error is None


async def test_a_dying_engine_hands_its_requests_back(cluster: Cluster) -> None:
    """Sequences handed back are resumed; one that failed by itself is not retried."""
    from tokenwire.worker.simulated_engine.faults import FaultPlan

    full = await cluster.undisturbed()
    for name in NAMES[:2]:
        await cluster.lose(name)
    await cluster.start("one", step_ms=4, faults=FaultPlan.parse(["crash@step=20"]))
    _, (listener,) = cluster.send()
    await cluster.start("two", step_ms=4, faults=FaultPlan.parse(["error@request=2:after=5"]))

    await listener.ended.wait()
    assert listener.token_ids == full

    _, (failing,) = cluster.send()
    await failing.ended.wait()
    assert failing.finish is not None
    assert failing.finish.reason == pb.FINISH_REASON_ERROR


async def test_a_draining_worker_hands_its_requests_over(cluster: Cluster) -> None:
    """They continue elsewhere at once, including requests of several sequences; the worker is soon idle."""
    full = await cluster.undisturbed(max_tokens=300)
    _, (listener,) = cluster.send(max_tokens=300)
    await some_tokens(listener)

    await cluster.worker(await cluster.holder()).drain(30)

    assert len(listener.token_ids) < 300
    await listener.ended.wait()
    assert listener.token_ids == full
    assert cluster.failover.stats.resumed == 1


async def test_a_drain_without_another_worker_finishes_its_replies(tmp_path: Path) -> None:
    """The worker finishes them; at its deadline the rest waits for the next worker."""
    cluster = Cluster(tmp_path, FailoverSettings())
    cluster.connect()
    await cluster.start("one", step_ms=4)
    full = await cluster.undisturbed(max_tokens=300)
    _, (short,) = cluster.send(max_tokens=20)
    _, (long,) = cluster.send(max_tokens=300)
    await some_tokens(short, 1)

    await cluster.worker("one").drain(0.3)
    assert short.finish is not None
    assert long.finish is None
    await cluster.lose("one")
    await cluster.start("one", step_ms=1)

    await long.ended.wait()
    assert long.token_ids == full
    await cluster.stop()


async def test_listeners_are_called_when_the_weights_change(cluster: Cluster) -> None:
    """With the version of the next worker's tokens, at the right position."""
    await cluster.lose("two")
    _, (listener,) = cluster.send(max_tokens=400)
    await some_tokens(listener)
    await cluster.start("two", step_ms=4)
    (second,) = [s for s in cluster.pool.sessions if s.address.endswith("two.sock")]
    second.labels.current = "new"

    await cluster.lose("one")

    await until(lambda: len(listener.versions) > 1)
    position, version = listener.versions[1]
    assert version == "new"
    assert position >= 10


class Sessionless:
    """A layer below that fails requests before they reach a worker."""

    def __init__(self, error: TokenwireError) -> None:
        self._error = error

    def check_open(self, model: str, adapter_id: int, placement: Placement = NEW, sequences: int = 1) -> None:
        """Admit everything."""

    def read_work(self) -> None:
        """Count nothing."""

    def late(self, after_s: float) -> Sequence[LateTenant]:
        """Return that nobody waits."""
        return ()

    def submit(
        self, model: str, submission: Submission, listeners: Sequence[SlotListener], placement: Placement = NEW
    ) -> SubmissionHandle:
        """Fail."""
        for listener in listeners:
            listener.fail(self._error)

        class Nothing:
            def abort(self) -> None:
                """Do nothing."""

            def abort_on(self, session: WorkerSession | None) -> None:
                """Do nothing."""

            def abort_one(self, listener: SlotListener) -> None:
                """Do nothing."""

            def explain(self) -> str:
                """Return no explanation."""
                return ""

        return Nothing()


async def test_an_error_before_placement_is_final() -> None:
    """An error of the admission queue is not a loss."""
    error = WorkerLost("waited too long")
    failover = Failover(Sessionless(error), FailoverSettings(), WorkerPool("test", accept))
    listener = Listener()

    failover.submit("m", greedy_submit(), [listener])

    assert listener.error is error
    assert failover.stats.resumed == 0
