"""The OpenAPI document is valid, complete, and true of the routes' responses."""

import base64
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from tests.coordinator.api.applications import all_routes, client_of, with_api_key
from tests.coordinator.api.openapi.described import Described
from tests.coordinator.api.openapi.documents import document_of, operations
from tests.coordinator.media import pictures
from tests.lazily import Lazily
from tests.summaries import REPLY_RULES
from tests.workers import running_worker, unix_address, until
from tokenwire.coordinator.api.openapi.operations import OPERATIONS
from tokenwire.coordinator.app import build_app
from tokenwire.coordinator.fleet.pool import WorkerPool
from tokenwire.coordinator.settings import CoordinatorSettings

pytestmark = pytest.mark.slow

schemathesis = Lazily("schemathesis")

ADMIN = {"Authorization": "Bearer open"}
TALK = [{"role": "user", "content": "Hi"}]
LOGPROBS = {"logprobs": True, "top_logprobs": 2}
IDS = {"return_token_ids": True, "return_prompt_text": True}
SAMPLING = {"max_tokens": 3, "logprobs": 2, "prompt_logprobs": 1}
SGLANG = {"input_ids": [65, 66], "return_logprob": True, "logprob_start_len": 0, "top_logprobs_num": 2}
RESPONSES = {"include": ["message.output_text.logprobs"], "top_logprobs": 2, "stream": True}
STREAM = {"stream": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True}}
SHORT = {"sampling_params": {"max_new_tokens": 3}}
SCORED = {"token_id": 65, "logprob": -1.0}
GENERATED = {
    "choices": [{"index": 0, "token_ids": [65], "logprobs": {"content": [{**SCORED, "top_logprobs": [SCORED]}]}}]
}

POSTS: list[tuple[str, dict[str, Any]]] = [
    ("/sessions", {"session_id": "x"}),
    ("/sessions/{session_id}/rewards", {"value": 1.0}),
    ("/sessions/{session_id}/nodes/{node_id}/rewards", {"value": 1.0}),
    ("/admin/flush", {}),
    ("/admin/workers", {"url": "http://127.0.0.1:1"}),
    ("/v1/chat/completions", {"messages": TALK, "max_tokens": 3}),
    ("/v1/chat/completions", {"messages": TALK, "max_tokens": 3, **LOGPROBS, **IDS, "prompt_logprobs": 1, "n": 2}),
    ("/v1/chat/completions", {"messages": TALK, "max_tokens": 3, **STREAM, **LOGPROBS, **IDS}),
    ("/v1/chat/completions/tokens", {"messages": TALK, "tokens": [65, 66], "max_tokens": 3}),
    ("/v1/chat/completions/render", {"messages": TALK, "return_token_offsets": True}),
    ("/v1/chat/completions/render", {"messages": TALK, **STREAM, **LOGPROBS}),
    ("/v1/chat/completions/derender", {"generate_response": GENERATED, "prompt_tokens": 1}),
    ("/v1/chat/completions/derender", {"generate_chunk": GENERATED, "stream": True}),
    ("/tokenwire/v1/chat/completions/render", {"messages": TALK, **IDS}),
    ("/v1/completions", {"prompt": "Hi", "max_tokens": 3}),
    ("/v1/completions", {"prompt": ["Hi", "Ho"], "max_tokens": 3, "logprobs": 2, "echo": True, **IDS}),
    ("/v1/completions", {"prompt": "Hi", "max_tokens": 3, **STREAM, "logprobs": 2, "echo": True, **IDS}),
    ("/v1/completions/render", {"prompt": ["Hi", "Ho"]}),
    ("/v1/completions/derender", {"generate_responses": [GENERATED]}),
    ("/v1/completions/derender", {"generate_chunk": GENERATED, "stream": True}),
    ("/tokenwire/v1/completions/render", {"prompt": "Hi"}),
    ("/v1/responses", {"input": "Hi", "max_output_tokens": 3}),
    ("/v1/responses", {"input": "Hi", "max_output_tokens": 3, **RESPONSES}),
    ("/v1/responses/{response_id}/cancel", {}),
    ("/v1/responses/compact", {"input": TALK}),
    ("/v1/messages", {"model": "simulated", "messages": TALK, "max_tokens": 3}),
    ("/v1/messages", {"model": "simulated", "messages": TALK, "max_tokens": 3, "stream": True}),
    ("/v1/messages/render", {"model": "simulated", "messages": TALK, "max_tokens": 3}),
    ("/v1/messages/count_tokens", {"model": "simulated", "messages": TALK}),
    ("/inference/v1/generate", {"token_ids": [65, 66], "sampling_params": SAMPLING, "return_token_ids": True}),
    (
        "/inference/v1/generate",
        {"token_ids": [65], "sampling_params": {"max_tokens": 3}, "output_mode": "text", **STREAM},
    ),
    ("/tokenize", {"prompt": "Hi", "return_token_strs": True}),
    ("/v1/tokenize", {"messages": TALK}),
    ("/detokenize", {"tokens": [65]}),
    ("/v1/detokenize", {"tokens": [65]}),
    ("/generate", {"text": "Hi", **SHORT}),
    ("/generate", {**SGLANG, **SHORT, "stream": True}),
    ("/generate", {"text": ["Hi", "Ho"], **SHORT}),
    ("/generate/", {"prompts": ["Hi"], "max_tokens": 3, "logprobs": 1}),
    ("/chat/", {"messages": [TALK], "max_tokens": 3}),
    ("/get_sequence_logprobs/", {"sequences": [[65, 66]], "prompt_lengths": [1], "top_logprobs": 5}),
    (
        "/get_sequence_logprobs/",
        {"sequences": [[65, 66]], "prompt_lengths": [1], "top_logprobs": 5, "response_format": "binary"},
    ),
    ("/inference/v1/abort_requests", {"request_ids": ["x"]}),
    ("/abort_requests", {"request_ids": ["x"]}),
    ("/abort_requests", {}),
    ("/abort_request", {"rid": "x"}),
    ("/v1/load_lora_adapter", {"lora_name": "a", "lora_path": "/a"}),
    ("/load_lora_adapter", {"lora_name": "a", "lora_path": "/a"}),
    ("/v1/rl/load_lora_adapter", {"lora_name": "a", "lora_path": "/a"}),
    ("/v1/unload_lora_adapter", {"lora_name": "a"}),
    ("/v1/rl/unload_lora_adapter", {"lora_name": "a"}),
    ("/pause", {}),
    ("/resume", {}),
    ("/sleep", {}),
    ("/wake_up", {"tags": ["weights"]}),
    ("/wake_up", {}),
    ("/update_weights", {"weight_dir": "/"}),
    ("/reload_weights", {}),
    ("/update_weight_version", {"new_version": "v"}),
    ("/init_weight_transfer_engine", {"init_info": {}}),
    ("/shutdown_weight_transfer_engine", {}),
    ("/start_weight_update", {}),
    ("/update_weights", {"update_info": {}}),
    ("/start_draft_weight_update", {}),
    ("/finish_weight_update", {}),
    ("/reset_prefix_cache", {}),
    ("/reset_prefix_cache/", {}),
    ("/collective_rpc", {"method": "x"}),
    ("/v1/rl/pause", {}),
    ("/v1/rl/resume", {}),
    ("/v1/rl/update_weights", {"weight_dir": "/"}),
    ("/init_communicator/", {"host": "127.0.0.1", "port": 1}),
    ("/update_named_param/", {"name": "a", "dtype": "float32", "shape": [1]}),
    ("/close_communicator/", {}),
]


POOLING: list[tuple[str, dict[str, Any]]] = [
    ("/v1/embeddings", {"input": "Hi"}),
    ("/v1/embeddings", {"input": [[65], [66]], "encoding_format": "base64"}),
    ("/v2/embed", {"texts": ["Hi"], "embedding_types": ["float", "binary", "ubinary", "base64"]}),
    *((path, {"queries": "Hi", "documents": ["Hi", "Ho"]}) for path in ("/score", "/v1/score")),
    *((path, {"query": "Hi", "documents": ["Hi", "Ho"]}) for path in ("/rerank", "/v1/rerank", "/v2/rerank")),
    ("/pooling", {"input": "Hi"}),
    ("/pooling", {"input": "Hi", "encoding_format": "base64"}),
]
"""For a model that embeds."""
PICTURE = "data:image/png;base64," + base64.b64encode(pictures.png()).decode()
SEEING: list[tuple[str, dict[str, Any]]] = [
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": [{"image_url": PICTURE}]}], "max_tokens": 3}),
]
CLASSIFYING: list[tuple[str, dict[str, Any]]] = [("/classify", {"input": ["Hi"]})]


READING = ("get", "delete")
MAY_BE_REJECTED = {
    *("/v1/responses/{response_id}", "/v1/responses/{response_id}/input_items", "/v1/responses/{response_id}/cancel"),
    *("/sessions/{session_id}/nodes/{node_id}/rewards", "/traces/{trace_id}", "/admin/workers/{worker_id}"),
    *("/collective_rpc", "/init_communicator/", "/update_named_param/", "/close_communicator/"),
}
"""No response is stored, nothing was sampled in a session, and a simulated engine has no processes and no GPU."""


async def test_it_follows_the_specification(tmp_path: Path) -> None:
    """It is an OpenAPI 3.1 document, with and without keys, and every schema in it is a JSON schema."""
    for each in (
        all_routes("127.0.0.1:1"),
        with_api_key(all_routes("127.0.0.1:1"), tmp_path),
        CoordinatorSettings(("127.0.0.1:1",)),
    ):
        document = await document_of(build_app(each))

        assert document["openapi"].startswith("3.1.")
        schemathesis.openapi.from_dict(document).validate()
        for schema in document["components"]["schemas"].values():
            jsonschema_rs.meta.validate(schema)


async def test_disabled_routes_are_not_in_it() -> None:
    """Without admin routes the document has none of their tags."""
    document = await document_of(build_app(CoordinatorSettings(("127.0.0.1:1",))))

    assert "/pause" not in document["paths"]
    assert not {"Admin", "Reinforcement learning"} & {tag["name"] for tag in document["tags"]}


async def test_real_responses_are_as_described(tmp_path: Path) -> None:
    """Every route's responses, full and streamed, have the described fields and no others."""
    document = await document_of(build_app(all_routes("127.0.0.1:1")))
    calls = [("post", path, body) for path, body in POSTS] + [("put", "/generate", {"text": "Hi", **SHORT})]
    calls += [("put", path, body) for path, body in POSTS if path.endswith("/rewards")]
    calls += [(method, path, {}) for path, method, _ in operations(document) if method in READING]
    calls.sort(key=lambda call: call[0] == "delete")
    pooling = [("post", path, body) for path, body in POOLING]
    classifying = [("post", path, body) for path, body in CLASSIFYING]

    answered = await answered_as_described(unix_address(tmp_path), calls, replies=REPLY_RULES)
    seeing = [("post", path, body) for path, body in SEEING]
    answered |= await answered_as_described(unix_address(tmp_path, "seeing"), seeing, image_tokens=4)
    answered |= await answered_as_described(unix_address(tmp_path, "embedder"), pooling, embedding_width=8)
    classes: dict[str, Any] = {"embedding_width": 3, "pooling_task": "classify"}
    answered |= await answered_as_described(unix_address(tmp_path, "classifier"), classifying, **classes)

    called = {(path, method) for method, path, _ in calls + pooling + classifying}
    assert called == {each[:2] for each in operations(document)}
    assert set(OPERATIONS) - answered <= MAY_BE_REJECTED


async def answered_as_described(
    address: str, calls: list[tuple[str, str, dict[str, Any]]], **simulation: Any
) -> set[str]:
    """Send calls to a worker of these settings, and check the responses; return the paths with a 200."""
    routes = all_routes(address)
    app = build_app(replace(routes, api=replace(routes.api, prompt_tokens_details=True)))
    pool: WorkerPool = app.state.pool
    answered = set()
    async with running_worker(address, **simulation), client_of(app) as client:
        await until(pool.is_ready)
        described = Described((await client.get("/openapi.json")).json())
        for method, path, body in calls:
            content = body if method not in READING else None
            url = re.sub(r"{\w+}", "x", path)
            response = await client.request(method, url, json=content, headers=ADMIN)
            described.check(path, response)
            if response.status_code == 200:
                answered.add(path)
    return answered


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"messages": 5, "input": 5, "prompt": 5, "mode": 5, "token_ids": 5}'])
async def test_real_errors_are_as_described(tmp_path: Path, body: bytes) -> None:
    """Invalid bodies get a described status, in the described format."""
    address = unix_address(tmp_path)
    app = build_app(all_routes(address))
    pool: WorkerPool = app.state.pool
    async with running_worker(address), client_of(app) as client:
        await until(pool.is_ready)
        described = Described((await client.get("/openapi.json")).json())
        headers = {**ADMIN, "content-type": "application/json"}
        for path, method, _ in operations(described.document):
            if method == "post":
                url = re.sub(r"{\w+}", "x", path)
                described.check(path, await client.post(url, content=body, headers=headers))
