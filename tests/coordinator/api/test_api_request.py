"""Bodies are JSON of valid Unicode, unsupported fields are rejected, headers are checked; errors name the field.

One file, since it tests one module.
"""

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import BaseModel, ConfigDict

from tests.bodies import body_models
from tests.coordinator.api.applications import served
from tests.coordinator.api.fields.requests import request_fields
from tests.turns import TurnsOfOthers
from tokenwire.coordinator.api.api_request import ApiRequest, RequestHeaders, UnsupportedFields
from tokenwire.coordinator.app import build_app
from tokenwire.coordinator.auth.admin_key import AdminKey
from tokenwire.coordinator.auth.api_keys import AuthSettings
from tokenwire.coordinator.auth.settings import AdminSettings
from tokenwire.coordinator.generation.context import CONTEXT, RequestContext
from tokenwire.coordinator.generation.limits import TRANSFER_PARAMS
from tokenwire.coordinator.http.backpressure import BodyBudget, BodyMemory, BodySettings
from tokenwire.coordinator.http.connection import AsgiConnection
from tokenwire.coordinator.output.settings import ApiSettings
from tokenwire.coordinator.settings import CoordinatorSettings
from tokenwire.errors import InvalidRequest

NOT_SERVED: dict[str, tuple[Any, ...]] = {"suffix": (None, ""), "use_beam_search": (None, False)}


async def test_every_route_checks_its_body() -> None:
    """Before it looks for a worker: there is none here."""
    admin = AdminSettings(rl_routes=True, admin_key=AdminKey("open"))
    app = build_app(CoordinatorSettings(("127.0.0.1:1",), api=ApiSettings(render_route=True), admin=admin))
    routes = sorted((method, path) for method, path in body_models(app) if method != "GET")
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as client:
        for method, path in routes:
            headers = {"content-type": "application/json", "authorization": "Bearer open"}
            response = await client.request(method, path, content=rb'{"model": "\ud800"}', headers=headers)

            assert (path, response.status_code) == (path, 400)
            assert "surrogate" in response.json()["error"]["message"]
    assert len(routes) > 40


async def test_no_route_ignores_transfer_parameters() -> None:
    """Those that do not pass them on reject them before they look for a worker: there is none here."""
    app = build_app(CoordinatorSettings(("127.0.0.1:1",), api=ApiSettings(render_route=True)))
    handing_on = {
        *("/v1/chat/completions", "/v1/chat/completions/render", "/v1/chat/completions/tokens"),
        *("/v1/messages/render", "/tokenwire/v1/chat/completions/render", "/tokenwire/v1/completions/render"),
        *("/v1/completions", "/v1/completions/render", "/v1/responses", "/v1/messages", "/v1/messages/count_tokens"),
        *("/inference/v1/generate", "/v1/responses/compact"),
    }
    routes = {path: method for method, path in body_models(app) if path not in handing_on}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as client:
        for path, method in routes.items():
            for name in TRANSFER_PARAMS:
                response = await client.request(method, path, json={name: {"prompt_token_ids": [1]}})

                assert (path, response.status_code) == (path, 400)
                assert response.json()["error"]["param"] == name
    assert {"/generate", "/generate/", "/chat/", "/tokenize"} <= set(routes)


def test_the_request_id_is_the_clients_if_given() -> None:
    """The header takes precedence over the body; without either an id is generated."""
    assert RequestHeaders({"x-request-id": "h"}).response_id("chatcmpl-", "b") == "chatcmpl-h"
    assert RequestHeaders({}).response_id("chatcmpl-", "b") == "chatcmpl-b"
    assert len(RequestHeaders({}).response_id("cmpl-", None)) == len("cmpl-") + 32


def test_an_invalid_rank_is_rejected() -> None:
    """The protocol has 32 bits for it; other text would be ignored silently."""
    assert RequestHeaders({"x-data-parallel-rank": str(2**32 - 1)}).data_parallel_rank == 2**32 - 1
    for rank in (-1, 2**32, 2**70, "x", "", "1.5", "9" * 5000):
        with pytest.raises(InvalidRequest, match="X-Data-Parallel-Rank must be a whole number") as rejected:
            RequestHeaders({"x-data-parallel-rank": str(rank)}).data_parallel_rank  # noqa: B018
        assert rejected.value.param == "X-Data-Parallel-Rank"


def test_headers_add_to_the_body() -> None:
    """A header's priority takes precedence, a body's conversation id does; an invalid priority counts as absent."""
    headers = RequestHeaders({"x-vllm-priority": "3", "x-session-id": "h", "x-data-parallel-rank": "1"})
    assert (headers.priority(5), headers.data_parallel_rank, headers.conversation(request_fields())) == (3, 1, "h")
    assert headers.conversation(request_fields(session_id="b")) == "b"

    nothing = RequestHeaders({"x-vllm-priority": "high"})
    assert (nothing.priority(5), nothing.data_parallel_rank) == (5, None)
    assert nothing.conversation(request_fields(vllm_xargs={"session_id": "x"})) == "x"


@pytest.mark.parametrize("fields", [{"suffix": "x"}, {"use_beam_search": True}])
def test_known_fields_that_are_not_served_are_rejected(fields: dict[str, Any]) -> None:
    """The error names the field."""
    with pytest.raises(InvalidRequest) as caught:
        UnsupportedFields(NOT_SERVED).check(fields)

    assert caught.value.param == next(iter(fields))


def test_values_without_effect_pass() -> None:
    """Clients that send defaults explicitly are served."""
    UnsupportedFields(NOT_SERVED).check({"suffix": "", "use_beam_search": False})
    UnsupportedFields(NOT_SERVED).check(None)


class _Body(BaseModel):
    model_config = ConfigDict(extra="allow")

    suffix: str | None = None
    use_beam_search: bool = False


@pytest.mark.parametrize("fields", [{"suffix": "x"}, {"use_beam_search": True, "suffix": ""}])
def test_declared_fields_are_rejected_as_well(fields: dict[str, Any]) -> None:
    """Whether a model declares a field's type or not, a value that is not served is rejected by name."""
    unsupported = UnsupportedFields(NOT_SERVED)
    unsupported.check_body(_Body(use_beam_search=False))

    with pytest.raises(InvalidRequest) as caught:
        unsupported.check_body(_Body(**fields))

    assert caught.value.param == next(iter(fields))


def test_unknown_fields_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """Only the first occurrence is logged; harmless fields never."""
    unsupported = UnsupportedFields(NOT_SERVED)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            unsupported.check({"frobnicate": 1, "metadata": {}, "store": True})

    assert [record.args for record in caplog.records] == [('"frobnicate"',)]


_LONG = "word " * 100_000
"""Longer than the model's context."""
_LONG_CHAT = {"messages": [{"role": "user", "content": _LONG}]}
_LONG_PROMPT = {"prompt": _LONG}
_UNKNOWN_ID = {"index": 0, "token_ids": [10**9]}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", _LONG_CHAT),
        ("/v1/chat/completions/render", _LONG_CHAT),
        ("/v1/chat/completions/tokens", {**_LONG_CHAT, "tokens": [10**9]}),
        ("/v1/completions", _LONG_PROMPT),
        ("/v1/completions/render", _LONG_PROMPT),
        ("/tokenwire/v1/chat/completions/render", _LONG_CHAT),
        ("/tokenwire/v1/completions/render", _LONG_PROMPT),
        ("/v1/chat/completions/derender", {"generate_response": {"choices": [_UNKNOWN_ID]}}),
        ("/v1/completions/derender", {"generate_responses": [{"choices": [_UNKNOWN_ID]}]}),
        ("/v1/messages/render", {"max_tokens": 1, **_LONG_CHAT}),
        ("/v1/messages", {"max_tokens": 1, **_LONG_CHAT}),
        ("/v1/messages/count_tokens", _LONG_CHAT),
        ("/v1/responses", {"input": _LONG}),
        ("/tokenize", _LONG_PROMPT),
        ("/tokenize", _LONG_CHAT),
        ("/detokenize", {"tokens": [10**9]}),
        ("/inference/v1/generate", {"token_ids": [10**9], "sampling_params": {}}),
        ("/generate", {"input_ids": [10**9]}),
        ("/generate/", {"prompts": [_LONG]}),
        ("/chat/", {"messages": [_LONG_CHAT["messages"]]}),
        ("/get_sequence_logprobs/", {"sequences": [[1, 10**9]], "prompt_lengths": [1]}),
    ],
)
async def test_a_caller_without_access_to_the_model_is_rejected_before_any_work(
    path: str, body: dict[str, Any], tmp_path: Path
) -> None:
    """On every route of a model: these prompts are errors as soon as they are rendered, tokenized or checked."""
    (keys := tmp_path / "keys").write_text(
        json.dumps([{"key": "other", "models": ["another"]}, {"key": "own", "models": ["simulated"]}])
    )
    async with served(tmp_path, auth=AuthSettings(keys)) as client:
        named = body if path.startswith(("/generate", "/chat", "/get_")) else {"model": "simulated", **body}
        rejected = await client.post(path, json=named, headers={"Authorization": "Bearer other"})
        allowed = await client.post(path, json=named, headers={"Authorization": "Bearer own"})

    assert (rejected.status_code, "may not use the model `simulated`" in rejected.text) == (403, True)
    assert allowed.status_code in (200, 400)


class Loose(BaseModel):
    """A body with any fields."""

    model_config = ConfigDict(extra="allow")
    prompt: str


def received(body: bytes, bodies: BodyBudget) -> ApiRequest:
    """Return a request whose body arrives in pieces."""
    pieces = [body[start : start + 2**15] for start in range(0, len(body), 2**15)]

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": pieces.pop(0), "more_body": bool(pieces)}

    async def send(message: object) -> None:
        raise AssertionError

    headers = {b"content-type": b"application/json"}
    context = RequestContext(AsgiConnection(receive, send), headers=headers, body=BodyMemory(bodies))
    return ApiRequest({"type": "http", "headers": list(headers.items()), CONTEXT: context}, receive, send)


async def test_a_large_body_counts_while_it_is_read_and_parsed() -> None:
    """With what its elements take once parsed; a small one does not count, however many there are."""
    bodies = BodyBudget(BodySettings())
    large = json.dumps({"prompt": "x", "zzz": [[]] * 100_000}).encode()

    await received(json.dumps({"prompt": "x" * 60_000}).encode(), bodies).read(Loose, required=True)
    assert bodies.held_bytes == 0
    request = received(large, bodies)
    await request.read(Loose, required=True)

    assert bodies.held_bytes > 100_000 * 56 + 2 * len(large)
    request.context.body.release()
    assert bodies.held_bytes == 0


async def test_arguments_of_calls_with_very_many_elements_are_rejected() -> None:
    """They are a string of the body, which would be parsed on the way to the prompt."""
    call = {"type": "function", "function": {"name": "f", "arguments": "[" + "[]," * 200_000 + "[]]"}}
    body = json.dumps({"prompt": "x", "messages": [{"role": "assistant", "tool_calls": [call]}]}).encode()

    with pytest.raises(InvalidRequest, match=r"messages\[0\]\.tool_calls\[0\]\.function\.arguments have \d+ .*, more"):
        await received(body, BodyBudget()).read(Loose, required=True)


async def test_what_is_unknown_in_a_body_is_not_kept() -> None:
    """Neither its bytes nor its fields: a stream may last for hours."""
    request = received(json.dumps({"prompt": "x", "zzz": [[]] * 10}).encode(), BodyBudget())

    body = await request.read(Loose, required=True)
    UnsupportedFields({}).check_body(body)

    assert (body.prompt, body.model_extra, await request.body()) == ("x", {}, b"")


async def test_others_have_their_turns_while_a_large_body_is_read() -> None:
    """Between what parses it and what validates it; a small one keeps nobody waiting."""
    turns = TurnsOfOthers()
    taken = []
    for size in (100, 100_000):
        before = turns.count
        await received(b'{"prompt": "%b"}' % (b"x" * size), BodyBudget(BodySettings())).read(Loose, required=True)
        taken.append(turns.count - before)

    assert taken[0] == 0
    assert taken[1] >= 4


ORDER: list[tuple[dict[str, str], dict[str, Any]]] = [
    ({}, {"session_id": "body"}),
    ({"x-session-id": "own"}, {}),
    ({}, {"vllm_xargs": {"session_id": "extra"}}),
    ({"x-claude-code-session-id": "claude"}, {}),
    ({"session-id": "codex"}, {}),
    ({"session_id": "older codex"}, {}),
    ({"x-session-affinity": "opencode"}, {}),
    ({}, {"prompt_cache_key": "key"}),
]
"""The headers and the fields of the body that name a session, each one before all that follow."""
NAMES = ["body", "own", "extra", "claude", "codex", "older codex", "opencode", "key"]


@pytest.mark.parametrize("first", range(len(ORDER)))
def test_the_first_name_of_a_session_counts(first: int) -> None:
    """Of all that come with a request, in the documented order."""
    headers: dict[str, str] = {}
    fields: dict[str, Any] = {}
    for more_headers, more_fields in ORDER[first:]:
        headers |= more_headers
        fields |= more_fields

    assert RequestHeaders(headers).conversation(request_fields(**fields)) == NAMES[first]


def test_an_empty_name_is_none() -> None:
    """The next one counts; without any, there is no session."""
    headers = RequestHeaders({"x-session-id": "", "session-id": ""})

    assert headers.conversation(request_fields(session_id="", prompt_cache_key="key")) == "key"
    assert headers.conversation(request_fields()) is None
    assert RequestHeaders({}).conversation(request_fields()) is None


def test_each_name_is_bounded() -> None:
    """It is in logs, and in keys of caches; the error has its place."""
    for name in ("X-Session-Id", "X-Claude-Code-Session-Id", "Session-Id", "Session_Id", "X-Session-Affinity"):
        with pytest.raises(InvalidRequest, match="more than 512") as rejected:
            RequestHeaders({name.lower(): "x" * 513})
        assert rejected.value.param == name
    with pytest.raises(InvalidRequest, match="more than 512"):
        RequestHeaders({}).conversation(request_fields(vllm_xargs={"session_id": "x" * 513}))


@pytest.mark.parametrize(
    ("headers", "fields"), [({"Session-Id": "s"}, {}), ({"X-Claude-Code-Session-Id": "s"}, {}), ({}, {"key": "s"})]
)
async def test_an_agents_session_is_served_with_exact_ids(
    tmp_path: Path, headers: dict[str, str], fields: dict[str, str]
) -> None:
    """The chat's next turn reuses the ids of its last one, without settings."""
    key = {"prompt_cache_key": fields["key"]} if fields else {}
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Hi"}]
    async with served(tmp_path) as client:
        for turn in range(2):
            body = {"messages": messages, "max_tokens": 4, **key}
            answer = (await client.post("/v1/chat/completions", json=body, headers=headers)).json()
            assert answer["token_history"]["mode"] == "exact"
            assert (answer["token_history"]["reused_tokens"] > 0) == bool(turn)
            messages += [answer["choices"][0]["message"], {"role": "user", "content": "Go on."}]


@pytest.mark.parametrize("size", [1_000, 60_000])
async def test_bodies_of_some_size_are_parsed_in_turns(size: int) -> None:
    """Tiny ones as they come; of others only a few at a time are parsed and not submitted yet."""
    budget = BodyBudget(BodySettings())
    requests = [received(b'{"prompt": "%b"}' % (b"x" * size), budget) for _ in range(5)]
    reading = [asyncio.create_task(request.read(Loose, required=True)) for request in requests]
    for _ in range(10):
        await asyncio.sleep(0)
    parsed = [task.done() for task in reading].count(True)
    assert parsed == (5 if size < 8192 else 2)  # of one client

    for request, task in zip(requests, reading, strict=True):
        await task
        request.context.body.release()
    assert not budget.turns_of(size)._taken
