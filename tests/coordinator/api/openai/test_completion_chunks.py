"""What chunks of completions have of their own; test_chunk_encoder.py has what all chunks have in common."""

from tests.coordinator.api.openai.chunks import chunks_of, completion_chunks
from tokenwire.coordinator.api.fields.logprobs import LogprobStyle
from tokenwire.coordinator.text.logprobs import ScoredPosition, ScoredToken
from tokenwire.coordinator.types import Finish, Prefill

LOGPROBS = [ScoredPosition.of(ScoredToken(5, "x", -0.5, 1), ScoredToken(6, "y", float("-inf"), 2))]


def test_text_offsets_continue_across_deltas() -> None:
    """For each choice separately."""
    writer = completion_chunks(logprobs=LogprobStyle(1))

    offsets = [
        chunks_of(writer.delta(index, "x", [5], None, LOGPROBS))[0]["choices"][0]["logprobs"]["text_offset"]
        for index in (0, 0, 1)
    ]

    assert offsets == [[0], [1], [0]]


def test_an_echo_alone_is_the_scored_prompt() -> None:
    """With max_tokens 0 a completion has the prompt with its log-probabilities and no generated tokens."""
    writer = completion_chunks(show_prompt=True, scores_only=True, logprobs=LogprobStyle(0))
    writer.prefilled(0, Prefill(0, None, [None, ScoredPosition.of(ScoredToken(2, "two", -1.5, 1))]))

    (chunk,) = chunks_of(writer.delta(0, "x", [5], Finish("length"), LOGPROBS))

    choice = chunk["choices"][0]
    assert choice["text"] == "one two"
    assert choice["logprobs"]["tokens"] == ["one", "two"]
    assert choice["logprobs"]["token_logprobs"] == [None, -1.5]


def test_the_log_probabilities_of_a_long_prompt_come_in_pieces() -> None:
    """In one event all the same, after which offsets continue; with all of the vocabulary every prompt is long."""
    prompt = [None, ScoredPosition.of(ScoredToken(2, "two", -1.5, 1), *LOGPROBS[0])]
    written = []
    for top in (3, -1):
        writer = completion_chunks(show_prompt=True, logprobs=LogprobStyle(top))
        writer.prefilled(0, Prefill(0, None, prompt))
        first = writer.delta(0, "x", [5], None, LOGPROBS)
        assert isinstance(first, bytes) == (top == 3)
        written.append(chunks_of(first) + chunks_of(writer.delta(0, "x", [5], Finish("length"), LOGPROBS)))

    assert written[0] == written[1]
    opening, last = (chunk["choices"][0]["logprobs"] for chunk in written[1])
    assert opening["tokens"] == ["one", "two", "x"]
    assert last["text_offset"] == [7]
