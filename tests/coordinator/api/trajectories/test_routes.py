"""The routes of sessions, over HTTP, with a simulated worker and its tokens."""

from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.coordinator.api.applications import all_routes, client_of, served
from tests.coordinator.trajectories.disk import full_disk
from tokenwire.coordinator.app import build_app
from tokenwire.coordinator.auth.api_keys import AuthSettings
from tokenwire.coordinator.fleet.failover.settings import FailoverSettings
from tokenwire.coordinator.response_store.settings import ResponseStoreSettings
from tokenwire.coordinator.trajectories.settings import TrajectorySettings

CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4}
GENERATING: list[tuple[str, dict[str, Any]]] = [
    ("/v1/chat/completions", CHAT),
    ("/v1/chat/completions", {**CHAT, "stream": True, "n": 2}),
    ("/v1/completions", {"prompt": ["Hi", "Ho"], "max_tokens": 4}),
    ("/v1/responses", {"input": "Hi", "max_output_tokens": 4}),
    ("/v1/messages", {"model": "simulated", "messages": CHAT["messages"], "max_tokens": 4}),
    ("/inference/v1/generate", {"token_ids": [65, 66], "sampling_params": {"max_tokens": 4}}),
    ("/v1/chat/completions/tokens", {**CHAT, "tokens": [65, 66]}),
    ("/generate", {"input_ids": [65, 66], "sampling_params": {"max_new_tokens": 4}}),
    ("/generate/", {"prompts": ["Hi"], "max_tokens": 4}),
    ("/chat/", {"messages": [CHAT["messages"]], "max_tokens": 4}),
]


@pytest.mark.parametrize("attempts", [0, 3], ids=["without failover", "with it"])
@pytest.mark.parametrize(("path", "body"), GENERATING)
async def test_every_generating_route_is_recorded(
    tmp_path: Path, path: str, body: dict[str, Any], attempts: int
) -> None:
    """Below the path of a session; the reply has no log-probabilities that were not asked for, and all nodes do."""
    async with served(tmp_path, failover=FailoverSettings(attempts=attempts)) as client:
        plain = await client.post(path, json=body)
        recorded = await client.post(f"/sessions/s{path}", json=body)
        graph = (await client.get("/sessions/s/trajectory")).json()

    assert (recorded.status_code, 'logprobs":[' in recorded.text) == (200, 'logprobs":[' in plain.text)
    assert graph["nodes"]
    for node in graph["nodes"]:
        assert len(node["completion_ids"]) == len(node["logprobs"]) == len(node["mask"]) == 4
        assert node["prompt_ids"]


async def test_recorded_log_probabilities_are_those_that_a_client_gets(tmp_path: Path) -> None:
    """Whether it asks for them or not."""
    async with served(tmp_path) as client:
        asked = (
            await client.post("/sessions/a/v1/chat/completions", json={**CHAT, "logprobs": True, "seed": 1})
        ).json()
        await client.post("/sessions/b/v1/chat/completions", json={**CHAT, "seed": 1})
        (first,) = (await client.get("/sessions/a/trajectory")).json()["nodes"]
        (second,) = (await client.get("/sessions/b/trajectory")).json()["nodes"]

    given = [each["logprob"] for each in asked["choices"][0]["logprobs"]["content"]]
    assert first["logprobs"] == second["logprobs"] == given
    assert first["completion_ids"] == second["completion_ids"]


async def test_limits_of_weights_of_a_session_hold_for_its_requests(tmp_path: Path) -> None:
    """By its URL; what is no limit is named."""
    async with served(tmp_path) as client:
        created = (await client.post("/sessions", json={"session_id": "s", "max_weight_lag": 2})).json()
        within = await client.post(f"{created['url']}/chat/completions", json=CHAT)
        without = await client.post("/sessions/s/v1/chat/completions", json=CHAT)
        wrong = await client.post("/sessions/s;max_weight_lag=x/v1/chat/completions", json=CHAT)

    assert created == {"session_id": "s", "url": "/sessions/s;max_weight_lag=2/v1"}
    assert (within.status_code, without.status_code) == (200, 200)
    assert (wrong.status_code, wrong.json()["error"]["param"]) == (400, "X-Max-Weight-Lag")


async def test_sessions_are_named_by_headers_and_keys_too(tmp_path: Path) -> None:
    """The path takes precedence over the key, and the key over the body and headers."""
    (keys := tmp_path / "keys").write_text("acme sesame\n")
    async with served(tmp_path, auth=AuthSettings(keys)) as client:
        key, named = {"Authorization": "Bearer sesame"}, {"Authorization": "Bearer sesame:session:by-key"}
        header = {"X-Session-Id": "by-header"}
        body = {**CHAT, "session_id": "by-body"}
        for path, headers, content in (
            ("/sessions/by-path/v1/chat/completions", {**named, **header}, body),
            ("/v1/chat/completions", {**named, **header}, body),
            ("/v1/chat/completions", {**key, **header}, CHAT),
            ("/v1/chat/completions", key, body),
            ("/v1/chat/completions", key, CHAT),
        ):
            assert (await client.post(path, json=content, headers=headers)).status_code == 200
        listed = (await client.get("/sessions", headers=key)).json()
        unnamed = await client.get("/sessions", headers={"Authorization": "Bearer wrong:session:x"})

    assert sorted(each["session_id"] for each in listed) == ["by-body", "by-header", "by-key", "by-path"]
    assert unnamed.status_code == 401


async def test_ids_that_agents_have_chosen_may_have_slashes(tmp_path: Path) -> None:
    """Their sessions are continued, read, rewarded and deleted as all are."""
    async with served(tmp_path) as client:
        await client.post("/v1/chat/completions", json={**CHAT, "prompt_cache_key": "team/a?1%2F"})
        path = f"/sessions/{quote('team/a?1%2F', safe='')}"
        await client.post(f"{path}/v1/chat/completions", json=CHAT)
        (listed,) = (await client.get("/sessions")).json()
        traces = (await client.get(f"{path}/traces")).json()
        trace = await client.get(f"/traces/{quote(traces[0]['trace_id'], safe='')}")
        rewarded = await client.put(f"{path}/rewards", json={"value": 1})
        rows = (await client.get(f"{path}/export?by=node")).text.splitlines()
        deleted = (await client.delete(path)).json()

    assert (listed["session_id"], listed["trace_count"]) == ("team/a?1%2F", 2)
    assert trace.json() == traces[0]
    assert (rewarded.status_code, len(rows), deleted) == (200, 2, {"deleted": 2})


async def test_a_url_that_is_returned_leads_to_its_session(tmp_path: Path) -> None:
    """Whatever its id has."""
    async with served(tmp_path) as client:
        url = (await client.post("/sessions", json={"session_id": "a?b #1%2F"})).json()["url"]
        await client.post(f"{url}/chat/completions", json=CHAT)
        (listed,) = (await client.get("/sessions")).json()

    assert (listed["session_id"], listed["trace_count"]) == ("a?b #1%2F", 1)


async def test_what_no_client_is_sent_is_not_recorded(tmp_path: Path) -> None:
    """To score a prompt, an engine samples a token that is dropped."""
    scored = {"prompt": "Hi", "max_tokens": 0, "echo": True, "logprobs": 1}
    async with served(tmp_path) as client:
        answer = await client.post("/sessions/s/v1/completions", json=scored)
        missing = await client.get("/sessions/s")

    assert (answer.status_code, missing.status_code) == (200, 404)


async def test_stored_responses_that_name_no_session_are_not_recorded(tmp_path: Path) -> None:
    """Their conversation has an id for routing and history only."""
    async with served(tmp_path, responses=ResponseStoreSettings(enabled=True)) as client:
        first = (await client.post("/v1/responses", json={"input": "Hi", "max_output_tokens": 4})).json()
        body = {"input": "More.", "max_output_tokens": 4, "previous_response_id": first["id"]}
        assert (await client.post("/v1/responses", json=body)).status_code == 200
        unnamed = (await client.get("/sessions")).json()
        second = (await client.post("/sessions/s/v1/responses", json=body)).json()
        body["previous_response_id"] = second["id"]
        assert (await client.post("/sessions/s/v1/responses", json=body)).status_code == 200
        named = (await client.get("/sessions")).json()

    assert unnamed == []
    assert [(each["session_id"], each["trace_count"]) for each in named] == [("s", 2)]


async def test_a_session_is_rewarded_exported_and_deleted(tmp_path: Path) -> None:
    """By the ids of its graph, and in rLLM's shape."""
    async with served(tmp_path) as client:
        for text in ("one", "two"):
            body = {**CHAT, "messages": [{"role": "user", "content": text}]}
            await client.post("/sessions/s/v1/chat/completions", json=body)
        pages = [(await client.get("/sessions/s/trajectory?limit=1")).json()]
        first = pages[0]["nodes"][0]["id"]
        pages.append((await client.get(f"/sessions/s/trajectory?limit=1&after={first}")).json())
        await client.put("/sessions/s/rewards", json={"value": 1})
        await client.post(f"/sessions/s/nodes/{first}/rewards", json={"value": 0.5, "name": "style"})
        traces = (await client.get("/sessions/s/traces")).json()
        row, *others = (await client.get("/sessions/s/export?by=node")).text.splitlines()
        second = (await client.get("/sessions/s/export?by=node&offset=1&limit=1")).text.splitlines()
        trace = (await client.get(f"/traces/{traces[0]['trace_id']}")).json()
        flushed = (await client.post("/admin/flush")).json()
        deleted = (await client.delete("/sessions/s")).json()
        gone = await client.get("/sessions/s")

    assert [page["has_more"] for page in pages] == [True, False]
    assert traces[0] == trace
    assert trace["metadata"]["rewards"] == {"style": 0.5}
    assert '"reward":1.0' in row
    assert second == others
    assert (flushed, deleted, gone.status_code) == ({"status": "flushed"}, {"deleted": 2}, 404)


async def test_what_a_store_without_room_does_not_take_is_refused(tmp_path: Path) -> None:
    """Of what clients say of sessions; replies do not suffer, and what was sampled counts as lost."""
    settings = TrajectorySettings(enabled=True, store=str(tmp_path / "sessions"))
    path = "/sessions/s/v1/chat/completions"
    async with served(tmp_path, trajectories=settings) as client:
        assert (await client.post(path, json=CHAT)).status_code == 200
        (node,) = (await client.get("/sessions/s/trajectory")).json()["nodes"]
        with full_disk():
            replies = [await client.post(path, json=CHAT)]
            refused = [
                await client.put(f"/sessions/s{at}/rewards", json={"value": 1}) for at in ("", f"/nodes/{node['id']}")
            ]
            refused.append(await client.post("/sessions", json={"session_id": "s", "metadata": {"task": 1}}))
            refused.append(await client.post("/sessions"))
            refused.append(await client.post("/admin/flush"))
        shown = (await client.get("/sessions/s")).json()
        rewarded = await client.put("/sessions/s/rewards", json={"value": 1})
        flushed = await client.post("/admin/flush")

    assert [each.status_code for each in (*replies, rewarded, flushed)] == [200, 200, 200]
    assert [each.status_code for each in refused] == [503] * len(refused)
    assert "The store of trajectories failed: File too large." in refused[0].text
    assert (shown["trace_count"], shown["lost"], shown["rewards"], shown["metadata"]) == (1, 1, {}, {})


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "param"),
    [
        ("GET", "/sessions/x", None, 404, "session_id"),
        ("GET", "/sessions/x/trajectory", None, 404, "session_id"),
        ("GET", "/sessions/x/traces", None, 404, "session_id"),
        ("GET", "/sessions/x/export", None, 404, "session_id"),
        ("DELETE", "/sessions/x", None, 404, "session_id"),
        ("PUT", "/sessions/x/rewards", {"value": 1}, 404, "session_id"),
        ("GET", "/traces/s:x", None, 404, "trace_id"),
        ("GET", "/traces/x", None, 404, "trace_id"),
        ("GET", "/traces/y:x", None, 404, "session_id"),
        ("PUT", "/sessions/s/nodes/x/rewards", {"value": 1}, 404, "node_id"),
        ("PUT", "/sessions/s/rewards", {"value": "high"}, 400, "value"),
        ("PUT", "/sessions/s/rewards", {}, 400, "value"),
        ("PUT", "/sessions/s/rewards", {"value": 1, "node": "x"}, 400, "node"),
        ("POST", "/sessions", {"session_id": 5}, 400, "session_id"),
        ("POST", "/sessions", {"session_id": "a/b"}, 400, "session_id"),
        ("POST", "/sessions", {"metadata": []}, 400, "metadata"),
        ("GET", "/sessions?limit=0", None, 400, "limit"),
        ("GET", "/sessions/s/trajectory?after=x", None, 400, "after"),
        ("GET", "/sessions/s/traces?since=x", None, 400, "since"),
        ("GET", "/sessions/s/export?format=csv", None, 400, "format"),
        ("GET", "/sessions/s/export?by=tree", None, 400, "by"),
        ("GET", "/sessions/s/export?after=x", None, 400, "after"),
        ("GET", "/sessions/s/trajectory?offset=1", None, 400, "offset"),
        ("GET", "/sessions/s/traces?after=x", None, 400, "after"),
        ("GET", "/sessions?offset=1", None, 400, "offset"),
        ("POST", "/sessions/s;max_weight_age=1/v1/chat/completions", CHAT, 400, "session_id"),
        ("POST", f"/sessions/{'x' * 600}/v1/chat/completions", CHAT, 400, "session_id"),
    ],
)
async def test_bad_requests_name_what_is_wrong(
    tmp_path: Path, method: str, path: str, body: Any, status: int, param: str
) -> None:
    """With a 4xx."""
    async with served(tmp_path) as client:
        await client.post("/sessions", json={"session_id": "s"})
        response = await client.request(method, path, json=body)

    error = response.json()["error"]
    assert (response.status_code, error["param"]) == (status, param), error


async def test_without_the_option_there_are_no_sessions() -> None:
    """The error names it."""
    async with client_of(build_app(replace(all_routes("127.0.0.1:1"), trajectories=TrajectorySettings()))) as client:
        for path in ("/sessions", "/sessions/s/v1/chat/completions"):
            response = await client.post(path, json=CHAT)
            assert response.status_code == 404
            assert "--enable-trajectories" in response.json()["error"]["message"]
