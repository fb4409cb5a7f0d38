"""The log line of a request."""

import logging

import pytest

from tokenwire.coordinator.observability.record import RequestRecord
from tokenwire.coordinator.observability.request_log import RequestLog, fields_of
from tokenwire.coordinator.types import Finish
from tokenwire.errors import EngineFailed, InvalidRequest

WORDS = frozenset({"application/json", "choice", "image_url", "json_schema", "regex", "role", "text"})


def _request_record(**changes: object) -> RequestRecord:
    known: dict[str, object] = {
        "method": "POST",
        "route": "/v1/completions",
        "status": 200,
        "began_at": 1.0,
        "ended_at": 2.0,
        "request_id": "cmpl-1",
        "model": "digits",
        "workers": ["a:1", "b:1"],
        "prompt_tokens": 7,
        "completion_tokens": 3,
        "finishes": [Finish("length")],
        "first_token_at": 1.25,
    }
    return RequestRecord(**{**known, **changes})  # type: ignore[arg-type]


def test_a_request_is_one_line_with_its_times() -> None:
    """Times that it did not reach are omitted, and so is its prompt."""
    assert fields_of(_request_record(), WORDS) == {
        "outcome": "ok",
        "status": 200,
        "route": "/v1/completions",
        "request_id": "cmpl-1",
        "model": "digits",
        "worker": "a:1,b:1",
        "prompt_tokens": 7,
        "cached_tokens": 0,
        "completion_tokens": 3,
        "finish": "length",
        "ttft_ms": 250.0,
        "total_ms": 1000.0,
    }


def test_a_recorded_prompt_is_logged() -> None:
    """Up to a limit."""
    assert fields_of(_request_record(prompt="one two"), WORDS)["prompt"] == "one two"
    assert len(fields_of(_request_record(prompt="x" * 100_000), WORDS)["prompt"]) < 20_000


def test_reads_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Probes and scrapers would fill the log."""
    caplog.set_level(logging.INFO)
    RequestLog(WORDS).on_end(_request_record(method="GET"))
    assert not caplog.records
    RequestLog(WORDS).on_end(_request_record())
    assert [record.message for record in caplog.records] == ["request"]


@pytest.mark.parametrize(
    ("reason", "logged"),
    [
        ("max_tokens must be at least 1, got 0.", "max_tokens must be at least 1, got 0."),
        (
            "This route takes no requests from other sites' pages.",
            "This route takes no requests from other sites' pages.",
        ),
        ("role must be user, not 'secret'.", "role must be user, not '...'."),
        ("key(s) ['secret', \"it's secret\"] are wrong", "key(s) ['...', '...'] are wrong"),
        ("'it's secret' and 'back\\\\slash \\' secret' are wrong", "'...' and '...' are wrong"),
        ("not 'secret that was cut", "not '...'"),
        ("messages[0] is of type 'image_url', but", "messages[0] is of type 'image_url', but"),
        ("body: Input should be 'text' or 'json_schema'", "body: Input should be 'text' or 'json_schema'"),
        ("one of {'regex': 'secret', \"choice\": None}", "one of {'regex': '...', \"choice\": None}"),
        ("must not contain '@', '/', or NUL", "must not contain '@', '/', or NUL"),
        ("Only 'application/json' is allowed", "Only 'application/json' is allowed"),
        ("'max_tokens secret' and 'regex", "'...' and 'regex"),
        ("the model `m` does not exist", "the model `m` does not exist"),
        ("x" * 5000, "x" * 200),
    ],
)
def test_a_rejection_has_the_reason_without_the_clients_text(reason: str, logged: str) -> None:
    """Quoted text may be a prompt. Fields, their options and symbols are shown."""
    record = _request_record(request_id="", model="", status=400, requested_model="m")
    record.set_rejection(reason, "role")

    fields = fields_of(record, WORDS)

    assert (fields["error"], fields["param"], fields["model"]) == (logged, "role", "m")


def test_a_workers_rejection_omits_the_clients_text_too() -> None:
    """Engines quote rejected input; their internal errors have no text of clients."""
    rejected = fields_of(_request_record(error=InvalidRequest("'regex' is wrong: 'my secret'", param="regex")), WORDS)
    failed = fields_of(_request_record(error=EngineFailed("'rank 3' died")), WORDS)

    assert (rejected["error"], failed["error"]) == ("'regex' is wrong: '...'", "'rank 3' died")
