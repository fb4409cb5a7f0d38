"""Inconsistencies between a full response and a stream of the same request are found."""

import pytest

from tests.conformance.parity.canned import REQUEST, STREAMED, chunks, error, full_body, reply, stream
from tests.conformance.parity.compare import Difference
from tests.conformance.parity.consistency import inconsistencies, marked, marked_whole, other_form
from tests.conformance.parity.explained import explain


def test_the_same_answer_in_both_forms_is_consistent() -> None:
    """The assembled stream equals the full response."""
    assert inconsistencies(REQUEST, reply(full_body()), stream(chunks())) == []


@pytest.mark.parametrize("position", [1, 2])
def test_lost_text_is_found(position: int) -> None:
    """A missing chunk is a difference of text and logprobs."""
    events = chunks()
    del events[position]["choices"][0]["delta"]["content"]

    assert inconsistencies(REQUEST, reply(full_body()), stream(events))[0].path == "self.choices.0.content"


def test_inconsistencies_of_the_reference_are_marked() -> None:
    """One in the same place is explained; another one is not."""
    text, usage = Difference("self.choices.0.content", 1, 2), Difference("self.usage.prompt_tokens", 1, 2)

    first, second = marked([text, usage], [text])

    assert explain(REQUEST, first) is not None
    assert explain(REQUEST, second) is None


def test_a_stream_that_says_what_the_full_reply_does_may_differ_from_the_references() -> None:
    """Only where the reference contradicts itself, and not where ours contradicts its full reply."""
    found, events = [Difference("stream.choices.0.content", 1, 2)], chunks()
    events[1]["choices"][0]["delta"]["content"] = "Hay"
    full, ours, theirs = reply(full_body()), stream(chunks()), stream(events)

    (difference,) = marked_whole(STREAMED, found, (ours, theirs), full)

    assert explain(STREAMED, difference) is not None
    for each in (events, cut := chunks()):
        each[2]["choices"][0]["finish_reason"] = "length"
    assert marked_whole(STREAMED, found, (stream(cut), stream(events)), full) == [difference]
    assert marked_whole(STREAMED, found, (theirs, ours), full) == found
    assert marked_whole(STREAMED, found, (ours, ours), full) == found


def test_an_error_in_one_form_only_is_found() -> None:
    """A request that succeeds in one form only is inconsistent."""
    assert inconsistencies(REQUEST, reply(full_body()), error("no"))[0].path == "self.status"


def test_forms_are_converted() -> None:
    """A request of a full response becomes a stream with usage; a streamed one a full one without stream options."""
    streamed, again = other_form(REQUEST), other_form(STREAMED)

    assert streamed is not None
    assert streamed.body == STREAMED.body
    assert again is not None
    assert again.body == REQUEST.body


def test_requests_that_cannot_be_streamed_have_no_other_form() -> None:
    """Prompt logprobs and beams are only for full responses."""
    assert other_form(REQUEST.with_fields(prompt_logprobs=1)) is None
    assert other_form(REQUEST.with_fields(use_beam_search=True)) is None
