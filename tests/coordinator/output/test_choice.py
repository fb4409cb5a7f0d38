"""A choice turns steps into deltas, and ends once."""

from collections.abc import Sequence
from functools import cache

import pytest

from tokenwire.coordinator.output.choice import Choice, SharedPromptLogprobs
from tokenwire.coordinator.text.logprobs import ScoredPosition, ScoredToken
from tokenwire.coordinator.types import Finish, Prefill, WeightSpan
from tokenwire.errors import EngineFailed, ProtocolError, TokenwireError, WorkerLost
from tokenwire.v1 import inference_pb2 as pb


class Letters:
    """Decodes id i to the i-th letter, with the stop string 'x'."""

    def step(self, token_ids: list[int], stop_terminated: bool, finished: bool) -> tuple[str, int, str | None]:
        """Decode; cut at x."""
        shown = token_ids[:-1] if stop_terminated else token_ids
        text = "".join(chr(97 + token_id) for token_id in shown)
        before, found, _ = text.partition("x")
        return (before, len(before) + 1, "x") if found else (text, len(token_ids), None)


class RecordedReply:
    """A reply that records its calls."""

    def __init__(self) -> None:
        self.first_tokens_calls = 0
        self.deltas: list[tuple[int, str, list[int], Finish | None]] = []
        self.logprobs: list[list[ScoredPosition] | None] = []
        self.prefills: list[Prefill] = []
        self.errors: list[TokenwireError] = []

    def tokens_of(self, index: int) -> int:
        """Count."""
        return sum(len(token_ids) for of, _, token_ids, _ in self.deltas if of == index)

    def first_tokens(self) -> None:
        """Count the calls."""
        self.first_tokens_calls += 1

    def prefilled(self, index: int, prefill: Prefill) -> None:
        """Record it."""
        self.prefills.append(prefill)

    def delta(
        self,
        index: int,
        text: str,
        token_ids: list[int],
        finish: Finish | None,
        logprobs: list[ScoredPosition] | None = None,
    ) -> None:
        """Record a delta."""
        self.deltas.append((index, text, token_ids, finish))
        self.logprobs.append(logprobs)

    def fail(self, error: TokenwireError) -> None:
        """Record an error."""
        self.errors.append(error)


class Scores:
    """Decodes one token a row."""

    def decode(self, rows: pb.LogprobRows) -> list[ScoredPosition]:
        """Decode."""
        return [scored(token_id) for token_id in rows.token_ids]


@cache
def scored(token_id: int) -> ScoredPosition:
    """Return the decoded row of one token: the same object for the same one."""
    return ScoredPosition.of(ScoredToken(token_id, chr(97 + token_id), -1.0, 1))


def rows_of_ids(*token_ids: int) -> pb.LogprobRows:
    """Return a row for each token."""
    return pb.LogprobRows(width=1, token_ids=token_ids, logprobs=[-1.0] * len(token_ids))


@pytest.fixture
def reply() -> RecordedReply:
    """A reply that records its calls."""
    return RecordedReply()


@pytest.fixture
def choice(reply: RecordedReply) -> Choice:
    """Choice 3 of the reply."""
    return Choice(3, Letters(), reply)


def test_tokens_become_text(choice: Choice, reply: RecordedReply) -> None:
    """A step without a finish is a delta; `first_tokens` is called once."""
    assert choice.step([0], None) is False
    assert choice.step([1, 2], None) is False

    assert reply.deltas == [(3, "a", [0], None), (3, "bc", [1, 2], None)]
    assert reply.first_tokens_calls == 1


@pytest.mark.parametrize(
    ("finish", "expected"),
    [
        (pb.Finish(reason=pb.FINISH_REASON_LENGTH), Finish("length")),
        (pb.Finish(reason=pb.FINISH_REASON_ABORT), Finish("abort")),
        (pb.Finish(reason=pb.FINISH_REASON_REPETITION), Finish("repetition", "repetition_detected")),
    ],
)
def test_endings_keep_the_last_text(choice: Choice, reply: RecordedReply, finish: pb.Finish, expected: Finish) -> None:
    """The last step's text and ids come with OpenAI's finish reason."""
    choice.step([0, 1], finish)

    assert reply.deltas == [(3, "ab", [0, 1], expected)]


def test_eos_is_counted_but_has_no_text(choice: Choice, reply: RecordedReply) -> None:
    """EOS stays in the ids, without text and stop_reason."""
    choice.step([0, 1], pb.Finish(reason=pb.FINISH_REASON_STOP, eos_token_id=1))

    assert reply.deltas == [(3, "a", [0, 1], Finish("stop", None))]


def test_a_stop_id_is_the_stop_reason(choice: Choice, reply: RecordedReply) -> None:
    """Even if it is 0."""
    choice.step([0], pb.Finish(reason=pb.FINISH_REASON_STOP, stop_token_id=0))

    assert reply.deltas == [(3, "", [0], Finish("stop", 0))]


def test_a_stop_string_returns_true_for_an_abort(choice: Choice, reply: RecordedReply) -> None:
    """A match ends the choice, drops later ids, and makes the session abort the slot."""
    assert choice.step([0, 23, 5], None) is True

    assert reply.deltas == [(3, "a", [0, 23], Finish("stop", "x"))]


def test_a_stop_string_beats_length_in_the_same_step(choice: Choice, reply: RecordedReply) -> None:
    """If the engine finishes in the step of a match, the match is the reason."""
    choice.step([0, 23, 5], pb.Finish(reason=pb.FINISH_REASON_LENGTH))

    assert reply.deltas[-1][3] == Finish("stop", "x")


def test_an_engine_error_is_an_error(choice: Choice, reply: RecordedReply) -> None:
    """An ERROR finish fails the reply with the engine's message."""
    choice.step([], pb.Finish(reason=pb.FINISH_REASON_ERROR, error_message="boom"))

    assert [type(error) for error in reply.errors] == [EngineFailed]
    assert reply.errors[0].message == "boom"
    assert reply.deltas == []


def test_failures_after_the_end_are_ignored(choice: Choice, reply: RecordedReply) -> None:
    """A choice that has ended does not depend on its worker any more."""
    choice.step([0], pb.Finish(reason=pb.FINISH_REASON_LENGTH))

    choice.fail(WorkerLost("gone"))

    assert reply.errors == []


def test_logprobs_come_with_their_tokens(reply: RecordedReply) -> None:
    """Rows of a frame belong to the following step; those after a stop string are dropped with their tokens."""
    choice = Choice(0, Letters(), reply, Scores)
    choice.scored(rows_of_ids(0))
    choice.step([0], None)
    choice.scored(rows_of_ids(1, 23, 5))
    choice.step([1, 23, 5], None)

    assert reply.logprobs == [[scored(0)], [scored(1), scored(23)]]


@pytest.mark.parametrize("rows", [[], [0]], ids=["none", "one too few"])
def test_a_token_without_logprobs_breaks_the_workers_promise(reply: RecordedReply, rows: list[int]) -> None:
    """A reply that has them has them for each token."""
    choice = Choice(0, Letters(), reply, Scores)
    if rows:
        choice.scored(rows_of_ids(*rows))

    with pytest.raises(ProtocolError, match="log-probabilities for each token"):
        choice.step([0, 1], None)


def test_logprobs_that_nobody_asked_for_are_dropped(reply: RecordedReply) -> None:
    """A worker may send what it likes."""
    choice = Choice(0, Letters(), reply)
    choice.scored(rows_of_ids(0, 1))
    choice.step([0], None)

    assert reply.logprobs == [None]


def test_a_prompts_logprobs_begin_with_none(reply: RecordedReply) -> None:
    """The first token of a prompt has no log-probability; the prefill has the number of cached tokens."""
    choice = Choice(0, Letters(), reply, prompt_logprobs=SharedPromptLogprobs(Scores))

    choice.prefilled(pb.PrefillInfo(cached_tokens=7, prompt_logprobs=rows_of_ids(4)))

    assert reply.prefills == [Prefill(7, None, [None, scored(4)])]


def test_choices_of_one_prompt_share_its_logprobs(reply: RecordedReply) -> None:
    """They are decoded once: a prompt of thousands of tokens may have hundreds of choices."""
    shared = SharedPromptLogprobs(Scores)
    for index in range(2):
        choice = Choice(index, Letters(), reply, prompt_logprobs=shared)
        choice.prefilled(pb.PrefillInfo(prompt_logprobs=rows_of_ids(4)))

    assert reply.prefills[0].logprobs == [None, scored(4)]
    assert reply.prefills[0].logprobs is reply.prefills[1].logprobs


def test_log_probabilities_of_long_prompts_are_decoded_as_they_are_read(reply: RecordedReply) -> None:
    """A few at a time, each time anew: decoded they take twenty times as much memory."""
    sizes = []

    class Counted(Scores):
        def decode(self, rows: pb.LogprobRows) -> list[ScoredPosition]:
            sizes.append(len(rows.token_ids))
            return super().decode(rows)

    ids = [4] * 20_000
    choice = Choice(0, Letters(), reply, prompt_logprobs=SharedPromptLogprobs(Counted))
    choice.prefilled(pb.PrefillInfo(prompt_logprobs=rows_of_ids(*ids)))
    assert sizes == [16]

    for _ in range(2):
        assert [*(reply.prefills[0].logprobs or ())] == [None, *[scored(4)] * 20_000]
    assert max(sizes) == 16


def test_kv_transfer_parameters_are_kept(choice: Choice, reply: RecordedReply) -> None:
    """A prefill worker's parameters in the finish are parsed to an object, unless they have megabytes."""
    with pytest.raises(ProtocolError, match="parameters of 2000000 characters"):
        choice.step([0], pb.Finish(reason=pb.FINISH_REASON_LENGTH, kv_transfer_params_json="1" * 2_000_000))
    choice.step([0], pb.Finish(reason=pb.FINISH_REASON_LENGTH, kv_transfer_params_json='{"block": 1}'))

    assert reply.deltas[-1][3] == Finish("length", None, {"block": 1})


def test_tokens_of_a_frame_can_be_passed_one_by_one(reply: RecordedReply) -> None:
    """With `token_by_token` each token is a delta with its log-probabilities; the last one has the finish."""
    choice = Choice(0, Letters(), reply, Scores, token_by_token=True)
    choice.scored(rows_of_ids(0, 1, 2))

    choice.step([0, 1, 2], pb.Finish(reason=pb.FINISH_REASON_LENGTH))

    assert reply.deltas == [(0, "a", [0], None), (0, "b", [1], None), (0, "c", [2], Finish("length"))]
    assert reply.logprobs == [[scored(0)], [scored(1)], [scored(2)]]


def test_one_by_one_ends_at_a_stop_string(reply: RecordedReply) -> None:
    """Tokens after a stop string are ignored."""
    choice = Choice(0, Letters(), reply, token_by_token=True)

    assert choice.step([0, 23, 5], None) is True
    assert [delta[2] for delta in reply.deltas] == [[0], [23]]


def test_the_finish_has_spans_of_weight_versions(choice: Choice, reply: RecordedReply) -> None:
    """Spans cover the choice's tokens without gaps; versions that generated none of them are left out."""
    for version in ("never", "v1"):
        choice.weights(version)
    choice.step([0, 1], None)
    for version in ("never", "v1"):
        choice.weights(version)
    choice.step([2], None)
    choice.weights("v2")
    choice.step([3, 4], pb.Finish(reason=pb.FINISH_REASON_LENGTH))

    assert _versions(reply) == [WeightSpan("v1", 0, 3), WeightSpan("v2", 3, 5)]


def test_weights_of_tokens_after_a_stop_string_do_not_count(choice: Choice, reply: RecordedReply) -> None:
    """A span ends where the choice does."""
    choice.weights("v1")
    choice.step([0, 23, 5], None)

    assert _versions(reply) == [WeightSpan("v1", 0, 2)]


@pytest.mark.parametrize(("version", "tokens", "expected"), [("", [0], None), ("v1", [], [])])
def test_unlabelled_weights_differ_from_no_tokens(
    choice: Choice, reply: RecordedReply, version: str, tokens: list[int], expected: list[WeightSpan] | None
) -> None:
    """Tokens of unlabelled weights have no spans at all; a choice without tokens has an empty list of them."""
    choice.weights(version)
    choice.step(tokens, pb.Finish(reason=pb.FINISH_REASON_ABORT))

    assert _versions(reply) == expected


def _versions(reply: RecordedReply) -> Sequence[WeightSpan] | None:
    finish = reply.deltas[-1][3]
    assert finish is not None
    return finish.weight_versions
