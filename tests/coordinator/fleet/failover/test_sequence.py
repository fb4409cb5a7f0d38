"""One sequence: whatever its listener raises, it gets exactly one ending.

One file, since what a sequence is told and what it counts are of one object.
"""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.coordinator.fleet.failover.recording_policy import RecordingPolicy
from tests.coordinator.fleet.test_frames import Breaking
from tests.coordinator.output.test_choice import Letters
from tests.coordinator.output.test_sse import FakeEncoder, RecordedSink
from tests.workers import Listener, accept
from tokenwire.coordinator.fleet.failover.sequence import Loss, ResumableRequest, ResumableSequence
from tokenwire.coordinator.fleet.frames import dispatch
from tokenwire.coordinator.fleet.request_handle import NEW
from tokenwire.coordinator.fleet.sampled_tokens import SampledTokens
from tokenwire.coordinator.fleet.session import WorkerSession
from tokenwire.coordinator.fleet.slots import SlotListener, SlotTable
from tokenwire.coordinator.fleet.submission import PooledInputs, Submission
from tokenwire.coordinator.output.choice import Choice
from tokenwire.coordinator.output.sse import StreamedReply
from tokenwire.coordinator.parsing.message import ParserFailed
from tokenwire.coordinator.text.logprobs import ScoredPosition
from tokenwire.coordinator.types import Finish
from tokenwire.errors import (
    EngineFailed,
    Overloaded,
    ProtocolError,
    TokenwireError,
    Unavailable,
    WorkerDraining,
    WorkerLost,
)
from tokenwire.v1 import inference_pb2 as pb

STOP = pb.Finish(slot=0, reason=pb.FINISH_REASON_STOP)
HANDED_BACK = pb.Finish(slot=0, reason=pb.FINISH_REASON_ABORT, handed_back=True)
REQUEST = ResumableRequest("m", Submission(), NEW)


class BreaksAtTheEnd(FakeEncoder):
    """Renders like a parser that raises on the last delta."""

    def delta(
        self,
        index: int,
        text: str,
        token_ids: list[int],
        finish: Finish | None,
        logprobs: list[ScoredPosition] | None = None,
    ) -> bytes:
        """Render it, unless it is the last."""
        if finish is not None:
            raise ParserFailed("the parser broke")
        return super().delta(index, text, token_ids, finish, logprobs)


def placed(sequence: ResumableSequence) -> SlotTable:
    """Place a sequence on a worker; return its slots."""
    slots = SlotTable()
    slots.take(sequence)
    sequence.request.sequences = [sequence]
    sequence.request.on_placed(WorkerSession("nowhere", "test", accept), Submission(), 1)
    return slots


def end(finish: pb.Finish = STOP) -> pb.StepFrame:
    """Return the last frame of a reply."""
    return pb.StepFrame(slots=[0], token_ids=[2], finishes=[finish])


def test_a_submission_is_completed_by_what_depends_on_its_worker() -> None:
    """The first one gets the seed of a possible replay, a later one the time since the first; both keep the rest."""
    session = WorkerSession("nowhere", "test", accept)
    session.capabilities = pb.EngineCapabilities(seeds=True)
    first, rest = (Submission(sampling_params=pb.SamplingParams(presence_penalty=1.0)) for _ in range(2))
    request = ResumableRequest("m", first, NEW)
    (sequence,) = request.listen([Listener()], RecordingPolicy())

    request.on_placed(session, first, 1)
    assert (first.sampling_params.HasField("seed"), first.resumed_after_ms) == (True, None)

    request.on_resumed(session, rest, 1)
    assert not rest.sampling_params.HasField("seed")
    assert rest.resumed_after_ms is not None
    assert sequence.session is session


def test_each_part_of_a_submission_has_its_worker() -> None:
    """Only the first one gets a seed, and none is a resumption."""
    one, other = (WorkerSession(name, "test", accept) for name in ("one", "other"))
    one.capabilities = other.capabilities = pb.EngineCapabilities(seeds=True)
    first = Submission(sampling_params=pb.SamplingParams(presence_penalty=1.0))
    request = ResumableRequest("m", first, NEW)
    sequences = request.listen([Listener() for _ in range(4)], RecordingPolicy())

    request.on_placed(one, first, 1)
    rest = replace(first, start=1)
    request.on_placed(other, rest, 2)

    assert [sequence.session for sequence in sequences] == [one, other, other, None]
    assert request.running_on(other) == sequences[1:3]
    assert rest.sampling_params.seed == first.sampling_params.seed
    assert rest.resumed_after_ms is None


LOST, DRAINING, FULL, AWAY = WorkerLost("gone"), WorkerDraining("leaves"), Overloaded("full"), Unavailable("away")


@pytest.mark.parametrize(
    ("error", "drains", "loss"),
    [
        (LOST, False, Loss("", died=True, certain=False, counts=True, refused=False, unproven_at="nowhere")),
        (LOST, True, Loss("", died=False, certain=False, counts=False, refused=False, unproven_at="nowhere")),
        (DRAINING, True, Loss("", died=False, certain=False, counts=False, refused=False, unproven_at="nowhere")),
        (AWAY, False, Loss("", died=False, certain=False, counts=True, refused=True, unproven_at="nowhere")),
        (FULL, False, Loss("", died=False, certain=False, counts=False, refused=True, unproven_at="nowhere")),
    ],
)
def test_an_error_of_its_worker_is_a_loss(error: TokenwireError, drains: bool, loss: Loss) -> None:
    """A death and a refusal that may be for good count against its attempts; a drain and a full worker do not."""
    listener, policy = Listener(), RecordingPolicy()
    sequence = ResumableSequence(REQUEST, 0, listener, policy)
    placed(sequence)
    sequence.step([1], None)
    assert sequence.session is not None
    sequence.session.worker_drains = drains

    sequence.fail(error)

    assert policy.losses == [loss]
    assert (sequence.losses, listener.error) == (loss.counts, None)
    assert sequence.avoid == {""}


@pytest.mark.parametrize("error", [FULL, EngineFailed("broken")])
def test_a_request_that_no_worker_would_take_fails(error: TokenwireError) -> None:
    """Without tokens, an overload is the client's to retry; a fault of the request itself goes nowhere."""
    listener, policy = Listener(), RecordingPolicy()
    sequence = ResumableSequence(REQUEST, 0, listener, policy)
    placed(sequence)

    sequence.fail(error)
    sequence.fail(LOST)

    assert (listener.error, policy.losses, policy.ends) == (error, [], 1)


def test_an_address_that_hands_a_sequence_back_again_is_tried_last() -> None:
    """Whatever process is there; in a rolling restart each one hands it back once."""
    request = ResumableRequest("m", Submission(), NEW)
    (sequence,) = request.listen([Listener()], RecordingPolicy())
    sessions = [WorkerSession(f"w{number}", "test", accept) for number in range(100)]
    for session in sessions:
        request.on_placed(session, Submission(), 1)
        sequence.step([], HANDED_BACK)
    assert (sequence.tried_at, sequence.losses) == (frozenset(), 0)

    request.on_placed(sessions[3], Submission(), 1)
    sequence.fail(WorkerDraining("it drains"))
    assert (sequence.tried_at, sequence.losses) == (frozenset({"w3"}), 0)


def test_a_listener_that_stops_ends_the_sequence() -> None:
    """Its worker gets an Abort, and nothing more is passed on."""

    class Content(Listener):
        def step(self, token_ids: list[int], finish: pb.Finish | None) -> bool:
            return super().step(token_ids, finish) or True

    listener, policy = Content(), RecordingPolicy()
    slots = placed(ResumableSequence(REQUEST, 0, listener, policy))

    assert dispatch(pb.StepFrame(slots=[0], token_ids=[1]), slots) == [0]

    assert (listener.token_ids, listener.finish, policy.ends) == ([1], None, 1)


def test_log_probabilities_are_passed_on() -> None:
    """Before the tokens that they are of."""
    listener, rows = Listener(), pb.LogprobRows(width=1, token_ids=[1], logprobs=[-1.0])

    ResumableSequence(REQUEST, 0, listener, RecordingPolicy()).scored(rows)

    assert listener.rows == [rows]


def test_tokens_that_a_replay_verified_are_gained() -> None:
    """As life of the worker that generated them again: those before it are not."""
    sequence = ResumableSequence(REQUEST, 0, Listener(), RecordingPolicy())
    sequence.step([1, 2, 3], None)
    placed(sequence)
    assert sequence.gained == 0

    sequence.on_verified(1)
    sequence.on_verified(2)
    sequence.step([4], None)

    assert sequence.gained == 4


def test_the_last_tokens_are_gained() -> None:
    """Though nobody continues from them, and so is what the worker had in its cache."""
    listener, info = Listener(), pb.PrefillInfo(cached_tokens=7)
    sequence = ResumableSequence(REQUEST, 0, listener, RecordingPolicy())
    placed(sequence)
    assert sequence.cached_tokens == 0
    sequence.prefilled(info)
    assert listener.prefills == [info]
    sequence.step([1, 2, 3], None)

    sequence.step([4, 5], pb.Finish(reason=pb.FINISH_REASON_STOP))

    assert (sequence.gained, sequence.cached_tokens) == (5, 7)


def test_a_recorded_sequence_records_its_own_tokens() -> None:
    """The last ones too, and each sequence of a request for itself."""
    sampled = [SampledTokens(1), SampledTokens(1)]
    request = ResumableRequest("m", Submission(sampled=sampled), NEW)
    one, other = request.listen([Listener(), Listener()], RecordingPolicy())
    other.step([9], None)
    one.step([1, 2], None)
    one.step([3], STOP)

    assert [[*each.token_ids] for each in sampled] == [[1, 2, 3], [9]]


class On:
    """A handle of a worker."""

    def __init__(self, worker: str) -> None:
        self._worker = worker

    def abort(self) -> None:
        """Do nothing."""

    def abort_on(self, session: WorkerSession | None) -> None:
        """Do nothing."""

    def abort_one(self, listener: SlotListener) -> None:
        """Do nothing."""

    def explain(self) -> str:
        """Return the worker."""
        return self._worker


def test_a_request_explains_which_workers_have_it() -> None:
    """The first one, then those of its sequences, and how often they were lost."""
    request = ResumableRequest("m", Submission(), NEW)
    one, other = request.listen([Listener(), Listener()], RecordingPolicy())
    assert request.explain() == ""
    request.handle = On("a")
    assert request.explain() == "a"

    one.handle, other.handle = On("b"), On("c")
    one.losses, other.losses = 2, 1

    assert request.explain() == "b, c; lost 3 times"


async def test_a_reply_that_raises_on_its_last_tokens_ends_with_the_error() -> None:
    """As when its parser does: the client gets the error and the end of the stream."""
    reply, reader, policy = StreamedReply(BreaksAtTheEnd(), 1, 3), RecordedSink(), RecordingPolicy()
    reply.attach(reader)
    slots = placed(ResumableSequence(REQUEST, 0, Choice(0, Letters(), reply), policy))
    dispatch(pb.StepFrame(slots=[0], token_ids=[1]), slots)

    dispatch(end(), slots)

    await reply.wait()
    assert reader.data == b"<[0 b 1]!the parser broke" + b"end"
    assert (policy.ends, policy.losses, slots.open) == (1, [], 0)


async def test_an_invalid_finish_is_an_error() -> None:
    """As when the transfer parameters for the next stage are not JSON."""
    reply, reader, policy = StreamedReply(FakeEncoder(), 1, 3), RecordedSink(), RecordingPolicy()
    reply.attach(reader)
    slots = placed(ResumableSequence(REQUEST, 0, Choice(0, Letters(), reply), policy))

    dispatch(end(pb.Finish(slot=0, reason=pb.FINISH_REASON_STOP, kv_transfer_params_json="{")), slots)

    await reply.wait()
    assert reader.data.startswith(b"<!The reply could not be processed")
    assert policy.ends == 1


@pytest.mark.parametrize("error", [ValueError("broken"), Unavailable("history is away")])
def test_an_error_of_a_listener_is_never_a_loss(error: Exception) -> None:
    """Of whatever kind: another worker would not help."""

    class Raising(Listener):
        def step(self, token_ids: list[int], finish: pb.Finish | None) -> bool:
            raise error

    listener, policy = Raising(), RecordingPolicy()
    slots = placed(ResumableSequence(REQUEST, 0, listener, policy))

    assert dispatch(pb.StepFrame(slots=[0], token_ids=[1]), slots) == [0]

    assert isinstance(listener.error, EngineFailed)
    assert (policy.ends, policy.losses) == (1, [])


def test_a_listener_that_aborts_during_its_last_step_ends_once() -> None:
    """Aborting from within is no second end."""

    class Leaving(Listener):
        def step(self, token_ids: list[int], finish: pb.Finish | None) -> bool:
            sequence.abort()
            return super().step(token_ids, finish)

    listener, policy = Leaving(), RecordingPolicy()
    sequence = ResumableSequence(REQUEST, 0, listener, policy)

    dispatch(end(), placed(sequence))

    assert (policy.ends, listener.finish, listener.error) == (1, STOP, None)


def test_a_listener_that_raises_when_it_is_failed_has_ended() -> None:
    """No other listener is called."""
    listener, policy = Breaking("step", fails=False), RecordingPolicy()
    slots = placed(ResumableSequence(REQUEST, 0, listener, policy))

    dispatch(end(), slots)

    assert isinstance(listener.error, TokenwireError)
    assert (policy.ends, slots.open) == (1, 0)


def test_a_second_terminal_event_is_a_fault() -> None:
    """It reaches no listener."""
    listener = Listener()
    sequence = ResumableSequence(REQUEST, 0, listener, RecordingPolicy())
    sequence.step([1], STOP)

    with pytest.raises(AssertionError, match="second terminal event"):
        sequence.step([], STOP)

    assert listener.steps_after_end == 0


def test_inputs_to_pool_are_not_searched_for_output() -> None:
    """Each of those that lose their worker asks for it, and a request may have thousands."""

    class Unread(list[ResumableSequence]):
        def __iter__(self) -> Iterator[ResumableSequence]:
            raise AssertionError("searched")

    submission = Submission(prompt_token_ids=[1], pooled=PooledInputs(pb.PoolingParams(), [1]))
    assert not ResumableRequest("m", submission, NEW, Unread()).has_output


@pytest.mark.parametrize("ends", [False, True])
def test_an_input_whose_worker_sends_tokens_is_tried_at_another(ends: bool) -> None:
    """They are none of its result, so nothing of it is lost."""

    class Input(Listener):
        def step(self, token_ids: list[int], finish: pb.Finish | None) -> bool:
            raise ProtocolError("tokens for an input")

    policy = RecordingPolicy()
    policy.others = True
    pooled = ResumableRequest(
        "m", Submission(prompt_token_ids=[1], pooled=PooledInputs(pb.PoolingParams(), [1])), NEW, []
    )
    listener = Input()
    sequence = ResumableSequence(pooled, 0, listener, policy)

    dispatch(end() if ends else pb.StepFrame(slots=[0], token_ids=[2]), placed(sequence))

    assert (len(policy.losses), policy.ends, listener.error) == (1, 0, None)
    assert not sequence.token_ids
