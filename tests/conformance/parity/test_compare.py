"""The comparison finds exactly the changes of a canned response."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.conformance.parity.canned import (
    ANSWERED,
    REQUEST,
    STREAMED,
    chunks,
    error,
    error_stream,
    full_body,
    listed,
    paths,
    reply,
    stream,
)
from tests.conformance.parity.compare import compare
from tests.conformance.parity.explained import EXPLANATIONS, explain

Change = Callable[[dict[str, Any]], object]


def test_a_response_equals_itself() -> None:
    """Another server's ids, times and fingerprint are no difference."""
    other = {**full_body(), "id": "chatcmpl-9", "created": 9, "system_fingerprint": "b"}

    assert compare(REQUEST, reply(full_body()), reply(other)) == []
    assert compare(STREAMED, stream(chunks()), stream([{**chunk, "id": "chatcmpl-9"} for chunk in chunks()])) == []


@pytest.mark.parametrize(
    ("change", "path"),
    [
        (lambda body: body["choices"][0]["message"].update(content="Hey"), "body.choices[0].message.content"),
        (lambda body: body["choices"][0]["message"].pop("reasoning"), "body.choices[0].message.reasoning"),
        (lambda body: body["choices"][0].update(finish_reason="length"), "body.choices[0].finish_reason"),
        (lambda body: body["choices"][0].update(token_ids=[]), "body.choices[0].token_ids"),
        (lambda body: body["choices"].append({}), "body.choices.length"),
        (lambda body: body.update(extra=None), "body.extra"),
        (lambda body: body.update(object="x"), "body.object"),
        (lambda body: body.update(id="cmpl-1"), "body.id"),
        (lambda body: body["usage"].update(prompt_tokens=4), "body.usage.prompt_tokens"),
        (lambda body: body["usage"].update(prompt_tokens=3.0), "body.usage.prompt_tokens"),
        (
            lambda body: body["choices"][0]["logprobs"]["content"][1].update(logprob=-0.26),
            "body.choices[0].logprobs.content[1].logprob",
        ),
    ],
)
def test_a_changed_field_is_found(change: Change, path: str) -> None:
    """Any change of a full response is a difference with its path."""
    changed = full_body()
    change(changed)

    assert paths(REQUEST, reply(changed), reply(full_body())) == [path]
    assert paths(REQUEST, reply(full_body()), reply(changed)) == [path]


def test_rounding_is_no_difference() -> None:
    """Logprobs that differ in the seventh digit are the same."""
    rounded = full_body()
    rounded["choices"][0]["logprobs"]["content"][0]["logprob"] -= 1e-7

    assert compare(REQUEST, reply(rounded), reply(full_body())) == []


def test_an_id_that_the_request_gives_is_compared() -> None:
    """If the request has an id, both servers must use it."""
    request = REQUEST.with_fields(request_id="mine")

    assert paths(request, reply(full_body()), reply({**full_body(), "id": "chatcmpl-mine"})) == ["body.id"]


@pytest.mark.parametrize(
    ("change", "path"),
    [
        (lambda events: events[1]["choices"][0]["delta"].update(content="Hay"), "stream.choices.0.content"),
        (lambda events: events[0]["choices"][0]["delta"].update(role="user"), "stream.roles[0][1]"),
        (lambda events: events[2]["choices"][0].update(stop_reason="you"), "stream.choices.0.stop_reason"),
        (lambda events: events[1]["choices"][0].update(token_ids=[5]), "stream.choices.0.token_ids"),
        (lambda events: events[3]["usage"].update(completion_tokens=3), "stream.usage.completion_tokens"),
        (lambda events: events[1].update(object="chat"), "stream.objects.length"),
        (lambda events: events[1].update(id="other"), "stream.ids"),
        (lambda events: events[0].update(prompt_token_ids=None), "stream.keys.role.prompt_token_ids"),
        (
            lambda events: events[1]["choices"][0]["logprobs"]["content"][0].update(token="Ho"),
            "stream.choices.0.logprobs.content[0].token",
        ),
    ],
)
def test_a_changed_chunk_is_found(change: Callable[[list[dict[str, Any]]], object], path: str) -> None:
    """The contents of a stream are compared, and so are the keys of its chunks."""
    changed = chunks()
    change(changed)

    assert path in paths(STREAMED, stream(changed), stream(chunks()))


@pytest.mark.parametrize(
    ("events", "wrong"),
    [
        ([0, 2, 1, 3], "a choice goes on after its finish_reason"),
        ([1, 0, 2, 3], "a role does not come first"),
        ([0, 1, 3, 2], "a chunk without choices is not the last one"),
        ([0, 1, 3], "a choice has no finish_reason"),
    ],
)
def test_the_order_of_events_is_compared(events: list[int], wrong: str) -> None:
    """A wrong order of events is a difference that describes it."""
    shuffled = stream([chunks()[position] for position in events])

    found = compare(STREAMED, shuffled, stream(chunks()))

    assert any(wrong in str(difference.ours) or "order" in difference.path for difference in found)


def test_a_stream_without_its_end_is_found() -> None:
    """[DONE] is part of the stream."""
    assert "stream.order.length" in paths(STREAMED, stream(chunks(), done=False), stream(chunks()))


def test_the_grouping_of_tokens_is_not_compared() -> None:
    """One chunk with all of the text equals several."""
    opening, first, last, usage = chunks()
    choice = last["choices"][0]
    choice["delta"]["content"] = "Hey you"
    choice["logprobs"]["content"][:0] = first["choices"][0]["logprobs"]["content"]

    assert compare(STREAMED, stream([opening, last, usage]), stream(chunks())) == []


def test_a_success_differs_from_an_error() -> None:
    """If only one server succeeds, the difference is the outcome of both."""
    (found,) = compare(REQUEST, error("n is wrong"), reply(full_body()))

    assert (found.path, found.ours["message"], found.theirs) == ("outcome", "n is wrong", ANSWERED)
    assert explain(REQUEST, found) is None


LISTED = "1 validation error:\n  {'type': 'int_parsing', 'loc': 'body.n', 'msg': 'Not a number', 'input': 'x'}"
OURS_LISTED = "1 validation error:\n  n: Not a number (got 'x')"
SMALL_N = "n must be at least 1, got 0."


@pytest.mark.parametrize(
    ("ours", "theirs", "name"),
    [
        (error(SMALL_N), error(f"{SMALL_N} (parameter=n, value=0)"), "the same error, readable"),
        (error(SMALL_N), error(SMALL_N, param=None), "names of fields"),
        (listed(OURS_LISTED, "n"), listed(LISTED, "body.n"), "the same error, readable"),
        (error(SMALL_N), error_stream(SMALL_N), "a status"),
        (error("`use_beam_search` is not supported.", "use_beam_search"), reply(full_body()), "beam search"),
    ],
)
def test_deliberate_differences_of_errors_are_explained(ours: Any, theirs: Any, name: str) -> None:
    """Equivalent errors, with the field named or with a status instead of an event."""
    request = REQUEST.with_fields(use_beam_search=name == "beam search")

    explanations = [explain(request, difference) for difference in compare(request, ours, theirs)]

    assert explanations
    assert all(explanation and explanation.name.startswith(name) for explanation in explanations)


def test_explanations_are_one_sentence() -> None:
    """Every explanation has a unique name and a full stop."""
    assert len({each.name for each in EXPLANATIONS}) == len(EXPLANATIONS)
    assert all(each.reason.endswith(".") and len(each.reason) < 160 for each in EXPLANATIONS)
