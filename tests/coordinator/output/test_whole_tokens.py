"""Parsers get tokens with all of their text, although some of it may become a stop string."""

from collections.abc import Sequence
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.coordinator.output.test_choice import RecordedReply
from tests.coordinator.text import tiny
from tokenwire.coordinator.output.choice import Choice
from tokenwire.coordinator.output.whole_tokens import WholeTokens
from tokenwire.coordinator.text.detokenizer import StoppingTextStream, TextRules, TextStreams
from tokenwire.v1 import inference_pb2 as pb

TOKENIZER = tiny.byte_fallback(strip=False)
PIECES = st.lists(st.sampled_from(["▁one", "▁two", "▁three", "o", "n", "e", "t", "<tool>", "<0x41>"]), max_size=9)
STOPS = st.lists(st.text(alphabet="one t>A", min_size=1, max_size=4), min_size=1, max_size=3).map(tuple)
FINISHES = {
    "stop": pb.Finish(reason=pb.FINISH_REASON_STOP),
    "length": pb.Finish(reason=pb.FINISH_REASON_LENGTH),
}


def stopping(stops: Sequence[str]) -> StoppingTextStream:
    """Return the stream of a text with stop strings."""
    stream = TextStreams(TOKENIZER, TextRules(stop=tuple(stops))).stream([])
    assert isinstance(stream, StoppingTextStream)
    return stream


def told(choice: Choice, reply: RecordedReply, ids: Sequence[int], finish: pb.Finish) -> RecordedReply:
    """Feed a choice tokens one by one until it ends; return its reply."""
    for number, token_id in enumerate(ids, 1):
        if choice.step([token_id], finish if number == len(ids) else None):
            break
    return reply


def whole(stops: Sequence[str], ids: Sequence[int], finish: pb.Finish) -> RecordedReply:
    """Return what a parser gets."""
    reply = RecordedReply()
    tokens = WholeTokens(stopping(stops), reply)
    return told(Choice(0, tokens, tokens, token_by_token=True), reply, ids, finish)


def test_a_token_comes_with_its_text_once_that_is_no_stop_string() -> None:
    """The marker's last character may begin the stop string."""
    ids = [tiny.token_id(TOKENIZER, token) for token in ("<tool>", "▁one", "▁two")]
    reply = whole([">>>"], ids, FINISHES["length"])

    assert [(text, token_ids) for _, text, token_ids, _ in reply.deltas] == [
        ("<tool>", ids[:1]),
        (" one", ids[1:2]),
        (" two", ids[2:]),
    ]
    assert reply.deltas[0][3] is None


@settings(max_examples=400)
@given(PIECES, STOPS, st.sampled_from([*FINISHES]))
def test_tokens_are_whole_up_to_a_stop_string_and_nothing_else_changes(
    pieces: list[str], stops: tuple[str, ...], ending: str
) -> None:
    """The same text, ids and finish as without; each token alone, with its own text unless a stop string cuts it."""
    ids = [tiny.token_id(TOKENIZER, piece) for piece in pieces] or [tiny.token_id(TOKENIZER, "▁one")]
    usual = RecordedReply()
    told(Choice(0, stopping(stops), usual, token_by_token=True), usual, ids, FINISHES[ending])
    reply = whole(stops, ids, FINISHES[ending])

    text = "".join(delta[1] for delta in usual.deltas)
    assert "".join(delta[1] for delta in reply.deltas) == text
    assert [delta[2] for delta in reply.deltas] == [[token_id] for delta in usual.deltas for token_id in delta[2]]
    assert reply.deltas[-1][3] == usual.deltas[-1][3]
    parts = [TOKENIZER.decode(ids[:end]) for end in range(len(ids) + 1)]
    ends = [len(part) for part in parts]
    sent = 0
    for (_, piece, _, finish), (begin, end) in zip(reply.deltas, pairwise(ends), strict=False):
        sent += len(piece)
        if finish is None:
            assert sent == min(end, len(text)), (begin, end)


def test_what_is_held_counts_as_a_token() -> None:
    """Versions of weights are counted in tokens, sent or not."""
    reply = RecordedReply()
    tokens = WholeTokens(stopping([">>>"]), reply)
    choice = Choice(0, tokens, tokens, token_by_token=True)
    choice.step([tiny.token_id(TOKENIZER, "<tool>")], None)

    assert (choice.gained, len(reply.deltas)) == (1, 0)
