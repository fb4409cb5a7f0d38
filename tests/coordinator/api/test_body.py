"""Bodies are JSON with valid Unicode strings; errors name the field."""

import json
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.bodies import body_models
from tokenwire.coordinator.api.body import parse_json
from tokenwire.coordinator.app import build_app
from tokenwire.coordinator.auth.admin_key import AdminKey
from tokenwire.coordinator.auth.settings import AdminSettings
from tokenwire.coordinator.generation.limits import TRANSFER_PARAMS
from tokenwire.coordinator.output.settings import ApiSettings
from tokenwire.coordinator.settings import CoordinatorSettings
from tokenwire.errors import Malformed

TEXT = st.text(st.characters(codec="utf-8"))
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner), max_leaves=20)


@given(value=VALUES, ascii_only=st.booleans())
def test_text_is_parsed_as_by_python(value: Any, ascii_only: bool) -> None:
    """With escapes, including surrogate pairs, or without."""
    assert parse_json(json.dumps(value, ensure_ascii=ascii_only).encode()) == value


@pytest.mark.parametrize(
    "body",
    ['{"a": 1e999, "b": -Infinity}', "\ufeff{}", '{"a":' + "[" * 500 + "]" * 500 + "}", '{"a": "😀\\ud83d\\ude00"}'],
)
def test_json_that_python_accepts_is_accepted(body: str) -> None:
    """Beyond what the faster parser accepts."""
    assert parse_json(body.encode()) == json.loads(body.encode())


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (rb'{"ok": 1, "model": "\ud800"}', "model"),
        (rb'{"messages": [{"role": "user", "content": ["a\udfffb"]}], "model": "x"}', "messages"),
        (rb'{"metadata": {"\udc00": 1}}', "metadata"),
        (b'{"user": "\xed\xa0\x80"}', "user"),
        (rb'{"\ude00\ud83d": 1}', r"\ude00\ud83d"),
        (rb'["\ud800"]', "body"),
    ],
)
def test_an_unpaired_surrogate_is_refused(body: bytes, field: str) -> None:
    """In any place and any spelling."""
    with pytest.raises(Malformed, match="surrogate") as caught:
        parse_json(body)

    assert caught.value.param == field


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
        *("/v1/completions", "/v1/completions/render", "/v1/responses", "/v1/messages", "/v1/messages/count_tokens"),
        "/inference/v1/generate",
    }
    routes = {path: method for method, path in body_models(app) if path not in handing_on}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as client:
        for path, method in routes.items():
            for name in TRANSFER_PARAMS:
                response = await client.request(method, path, json={name: {"prompt_token_ids": [1]}})

                assert (path, response.status_code) == (path, 400)
                assert response.json()["error"]["param"] == name
    assert {"/generate", "/generate/", "/chat/", "/tokenize"} <= set(routes)
