"""Which resumed replies are of one run, on real sockets: replays, their divergence, and the policy."""

from collections.abc import Sequence
from typing import Any

import pytest

from tests.coordinator.fleet.behaviour.cluster import SEEDED, Cluster, greedy_submit, some_tokens
from tests.workers import Listener, accept, send
from tokenwire.coordinator.fleet.admission.queue import AdmissionQueue
from tokenwire.coordinator.fleet.admission.settings import AdmissionSettings
from tokenwire.coordinator.fleet.failover.failover import Failover
from tokenwire.coordinator.fleet.failover.settings import FailoverSettings, ResumePolicy
from tokenwire.coordinator.fleet.pool import WorkerPool
from tokenwire.coordinator.fleet.request_handle import NEW, LateTenant, Placement, SubmissionHandle
from tokenwire.coordinator.fleet.slots import SlotListener
from tokenwire.coordinator.fleet.submission import Submission
from tokenwire.errors import EngineFailed, RevisionLost
from tokenwire.protocol.model_revision import ModelRevision
from tokenwire.v1 import inference_pb2 as pb
from tokenwire.worker.simulated_engine.engine import SimulatedEngine
from tokenwire.worker.simulated_engine.settings import SimulationSettings

GENERATORS = pytest.mark.parametrize("cluster", [{"seeds": "generator"}], indirect=True)
"""Settings of an engine in which each request samples from its own generator, as in most engines."""


class Imprecise(SimulatedEngine):
    """Generates other tokens with the same weights, as another kind of GPU may."""

    def __init__(self) -> None:
        super().__init__(SimulationSettings(step_ms=4, seeds="generator", seed=99))

    def describe(self) -> pb.Model:
        """Announce the weights of all engines here."""
        model = super().describe()
        model.weights_digest = SimulationSettings().weights_digest
        return model


async def lose_to_another_model(cluster: Cluster, placement: Placement) -> Listener:
    """Send a seeded request, lose its worker, and keep one that generates other tokens; return when it has ended."""
    await cluster.lose("two")
    await cluster.start("two", engine=Imprecise())
    listener = Listener()
    handle = cluster.failover.submit("simulated", greedy_submit(**SEEDED), [listener], placement)
    if handle.explain().endswith("two.sock"):
        listener = Listener()
        cluster.failover.submit("simulated", greedy_submit(**SEEDED), [listener], placement)
    await some_tokens(listener)
    await cluster.lose("one")
    await listener.ended.wait()
    return listener


@GENERATORS
async def test_a_diverging_replay_is_an_error_for_clients_that_get_ids(cluster: Cluster) -> None:
    """They never get tokens of two runs."""
    listener = await lose_to_another_model(cluster, Placement(exact=True))

    assert isinstance(listener.error, EngineFailed)
    assert "differs from the first" in listener.error.message


@GENERATORS
async def test_a_diverging_replay_continues_from_the_tokens_for_clients_that_get_text(cluster: Cluster) -> None:
    """They get the remaining tokens, as many as requested, and the usage counts all of them."""
    listener = await lose_to_another_model(cluster, NEW)

    assert listener.error is None
    assert len(listener.token_ids) == 120
    assert listener.resumptions == 2
    assert listener.steps_after_end == 0
    assert cluster.pool.open_slots == 0


class OtherNoise(SimulatedEngine):
    """Draws other tokens for a seed, as another minor of vLLM may, and says so."""

    def __init__(self) -> None:
        super().__init__(SimulationSettings(step_ms=4, seeds="generator"))

    def capabilities(self) -> pb.EngineCapabilities:
        """Announce it."""
        capabilities = super().capabilities()
        capabilities.seeded_noise = "another"
        return capabilities


@GENERATORS
async def test_a_seeded_reply_goes_on_where_its_noise_is_drawn(cluster: Cluster) -> None:
    """Not with a worker that draws other tokens for its seed, though that one is idle."""
    alone = await cluster.undisturbed(**SEEDED)
    await cluster.start("three", engine=OtherNoise())
    listener = Listener()
    handle = cluster.failover.submit("simulated", greedy_submit(**SEEDED), [listener], Placement(exact=True))
    while handle.explain().endswith("three.sock"):
        listener = Listener()
        handle = cluster.failover.submit("simulated", greedy_submit(**SEEDED), [listener], Placement(exact=True))
    await some_tokens(listener)

    await cluster.lose(handle.explain().partition(";")[0].rpartition("/")[2].removesuffix(".sock"))
    await listener.ended.wait()

    assert listener.error is None
    assert listener.token_ids == alone


@GENERATORS
async def test_a_seeded_reply_ends_where_nobody_draws_its_noise(cluster: Cluster) -> None:
    """For a client that gets ids, at once with an error that says so; another one gets tokens of the other noise."""
    await cluster.start("three", engine=OtherNoise())
    one, three = (cluster.worker(name).address for name in ("one", "three"))
    cluster.pool.update([one])
    exact, text = Listener(), Listener()
    cluster.failover.submit("simulated", greedy_submit(**SEEDED), [exact], Placement(exact=True))
    cluster.failover.submit("simulated", greedy_submit(**SEEDED), [text])
    await some_tokens(exact)
    await some_tokens(text)

    cluster.pool.update([three])
    await cluster.lose("one")
    await exact.ended.wait()
    await text.ended.wait()

    assert isinstance(exact.error, RevisionLost)
    assert "draw others for its seed" in exact.error.message
    assert (text.error, len(text.token_ids)) == (None, 120)


class Unpromising(WorkerPool):
    """Workers without known capabilities."""

    def capabilities(
        self, model: str, adapter_id: int = 0, revision: ModelRevision | None = None, seeded_noise: str = ""
    ) -> pb.EngineCapabilities:
        """Return no capabilities."""
        return pb.EngineCapabilities()


@pytest.mark.parametrize(
    ("policy", "sampling", "exact", "expected"),
    [
        ("auto", {}, False, False),
        ("auto", {}, True, True),
        ("auto", {"logprobs": 0}, False, True),
        ("exact", {}, False, True),
        ("plausible", {"logprobs": 0}, True, False),
    ],
)
async def test_the_policy_determines_which_replies_are_of_one_run(
    cluster: Cluster, policy: ResumePolicy, sampling: dict[str, Any], exact: bool, expected: bool
) -> None:
    """Without known batch invariance a greedy reply is replayed for those, and continued for others."""
    queue = AdmissionQueue(cluster.pool, AdmissionSettings())
    failover = Failover(queue, FailoverSettings(resume=policy), Unpromising("test", accept))
    listener = Listener()
    failover.submit("simulated", greedy_submit(**sampling), [listener], Placement(exact=exact))
    await some_tokens(listener)

    await cluster.lose(await cluster.holder())

    await listener.ended.wait()
    assert listener.error is None
    assert (failover.stats.replayed, failover.stats.resumed) == (expected, not expected)


async def test_an_unseeded_request_with_penalties_gets_a_seed(cluster: Cluster) -> None:
    """It can only be resumed by a replay, which must generate the same tokens; others are sent unchanged."""
    sent: list[Submission] = []

    class Below:
        def check_open(self, model: str, adapter_id: int, placement: Placement = NEW, sequences: int = 1) -> None:
            pass

        def read_work(self) -> None:
            """Count nothing."""

        def late(self, after_s: float) -> Sequence[LateTenant]:
            return ()

        def submit(
            self, model: str, submission: Submission, listeners: Sequence[SlotListener], placement: Placement = NEW
        ) -> SubmissionHandle:
            sent.append(submission)
            return send(cluster.pool, submission, listeners, model, placement)

    failover = Failover(Below(), FailoverSettings(), cluster.pool)
    kinds: list[dict[str, Any]] = [{"frequency_penalty": 0.5}, {}, {"repetition_penalty": 1.2}]
    for sampling in kinds:
        failover.submit("simulated", greedy_submit(temperature=1.0, **sampling), [Listener()])

    assert [submission.sampling_params.HasField("seed") for submission in sent] == [True, False, False]
