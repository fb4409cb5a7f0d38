"""Each limit of docs/reference/api.md: a request at it reaches a worker, one beyond it is rejected by name."""

from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from tests.docs.commands import ROOT
from tests.processes import Service

CHAT, TEXT, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/responses"
HI = {"role": "user", "content": "Hi"}


@dataclass(frozen=True)
class DocumentedLimit:
    """A limit in the table, with its number there."""

    row: str
    shown: str
    path: str
    at: dict[str, Any]
    beyond: dict[str, Any]
    param: str

    def __str__(self) -> str:
        return f"{self.row} {self.param}"


def _of_completion(row: str, shown: str, param: str, at: Any, beyond: Any, field: str = "") -> DocumentedLimit:
    return DocumentedLimit(row, shown, TEXT, {field or param: at}, {field or param: beyond}, param)


def _outputs(row: str, shown: str, kind: str, at: Any, beyond: Any) -> DocumentedLimit:
    field = "structured_outputs"
    return DocumentedLimit(row, shown, TEXT, {field: {kind: at}}, {field: {kind: beyond}}, f"{field}.{kind}")


def _ids(count: int) -> list[int]:
    return [7] * count


def _nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "integer"}
    for _ in range(levels):
        schema = {"type": "array", "items": schema}
    return schema


LIMITS = [
    DocumentedLimit(
        "messages; tools", "10 000", CHAT, {"messages": [HI] * 100}, {"messages": [HI] * 10_001}, "messages"
    ),
    DocumentedLimit(
        "messages; tools",
        "1024",
        CHAT,
        {"messages": [HI], "tools": [{"type": "function", "function": {"name": "f"}}] * 1024, "tool_choice": "none"},
        {"messages": [HI], "tools": [{"type": "function", "function": {"name": "f"}}] * 1025, "tool_choice": "none"},
        "tools",
    ),
    _of_completion("`request_id`", "512", "request_id", "x" * 512, "x" * 513),
    _of_completion("`n`; prompts", "16 384", "n", 64, 16_385),
    _of_completion("`n`; prompts", "16 384", "prompt", [_ids(1)] * 256, [_ids(1)] * 16_385),
    _of_completion("`stop`", "4 of", "stop", list("abcd"), list("abcde")),
    _of_completion("`stop`", "4096 characters", "stop", "x" * 4096, "x" * 4097),
    _of_completion("`bad_words`", "128 of", "bad_words", ["b"] * 128, ["b"] * 129),
    _of_completion("`bad_words`", "1024 characters", "bad_words", ["b" * 1024], ["b" * 1025]),
    _of_completion("`logit_bias`", "10 000", "logit_bias", {"7": 0}, {f"{i}": 0 for i in range(10_001)}),
    _of_completion("`logit_bias`", "1024", "stop_token_ids", list(range(200)), list(range(1025))),
    _of_completion("`logit_bias`", "128", "logprob_token_ids", list(range(128)), list(range(129))),
    _of_completion("`logit_bias`", "393 216", "allowed_token_ids", _ids(393_216), _ids(393_217)),
    DocumentedLimit("Responses' `user`", "512", RESPONSES, {"user": "u" * 512}, {"user": "u" * 513}, "user"),
    DocumentedLimit(
        "Responses' `user`",
        "16 pairs",
        RESPONSES,
        {"metadata": {f"{i}": "x" for i in range(16)}},
        {"metadata": {f"{i}": "x" for i in range(17)}},
        "metadata",
    ),
    _outputs("JSON schema, grammar", "256 K", "json", {"title": "x" * 261_000}, {"title": "x" * 2**18}),
    _outputs("JSON schema, grammar", "256 K", "grammar", f'root ::= "{"x" * 999}"', f'root ::= "{"x" * 2**18}"'),
    _outputs("JSON schema, grammar", "10 000 choices", "choice", ["a"] * 10_000, ["a"] * 10_001),
    _outputs("regular expression", "32 K", "regex", "x" * 2**15, "x" * (2**15 + 1)),
    _outputs("objects and arrays", "64 levels", "json", _nested(60), _nested(65)),
    _outputs("objects and arrays", "64 levels", "regex", "(" * 64 + "a" + ")" * 64, "(" * 65 + "a" + ")" * 65),
    _outputs("repetition in an", "100000", "regex", "a{1,100000}", "a{1,100001}"),
]


def documented_maxima() -> dict[str, str]:
    """Return the maxima of the page by what they limit."""
    section = (ROOT / "docs" / "reference" / "api.md").read_text().partition("## Limits on requests")[2]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| ")]
    return {row[0]: row[1] for row in rows if len(row) > 1}


def request_with(limit: DocumentedLimit, fields: dict[str, Any]) -> dict[str, Any]:
    """Return a small request with these fields."""
    own: dict[str, dict[str, Any]] = {
        CHAT: {"max_tokens": 1},
        TEXT: {"max_tokens": 1, "prompt": "Hi"},
        RESPONSES: {"max_output_tokens": 1, "input": "Hi"},
    }
    scores = {"logprobs": 1} if "logprob_token_ids" in fields else {}
    return own[limit.path] | {"temperature": 1.0} | scores | fields


@pytest.mark.parametrize("limit", LIMITS, ids=str)
def test_a_limit_is_where_the_page_says(service: Service, limit: DocumentedLimit) -> None:
    """The page has the number; at it, or at the most that the model's context allows, a request reaches a worker."""
    (shown,) = [maximum for name, maximum in documented_maxima().items() if name.startswith(limit.row)]
    at = httpx.post(service.url + limit.path, json=request_with(limit, limit.at), timeout=60)
    beyond = httpx.post(service.url + limit.path, json=request_with(limit, limit.beyond), timeout=60)

    assert limit.shown in shown
    assert at.status_code == 200 or "simulated engine cannot honour" in at.text, at.text[:500]
    assert beyond.status_code == 400
    assert beyond.json()["error"]["param"] == limit.param, beyond.text[:500]


@pytest.mark.parametrize(
    ("count", "what", "item"), [("524 288 strings", "parts", "[],"), ("3 145 728 values", "values", "7,")]
)
def test_a_body_has_so_many_elements(service: Service, count: str, what: str, item: str) -> None:
    """Beyond that it is not even parsed."""
    (shown,) = [maximum for name, maximum in documented_maxima().items() if name.startswith("a body of more than")]
    number = int("".join(filter(str.isdigit, count)))
    content = '{"prompt":"Hi","max_tokens":1,"frobnicate":[' + item * (number + 1)
    headers = {"content-type": "application/json"}

    answer = httpx.post(service.url + TEXT, content=content[:-1] + "]}", headers=headers, timeout=60)

    assert count in shown
    assert answer.status_code == 400
    assert f"{number}" in answer.json()["error"]["message"], what


@pytest.mark.parametrize(("count", "status"), [(200, 200), (257, 431)])
def test_a_head_has_so_many_headers(service: Service, count: int, status: int) -> None:
    """More are rejected before the body is read."""
    (shown,) = [maximum for name, maximum in documented_maxima().items() if name.startswith("request line and headers")]
    headers = {f"X-{number}": "1" for number in range(count)}

    answer = httpx.post(service.url + TEXT, json={"prompt": "Hi", "max_tokens": 1}, headers=headers)

    assert "64 KB, 256 headers" in shown
    assert answer.status_code == status
