"""Invalid input gets an error that names the field, and reaches no worker."""

from typing import Any

import httpx
import pytest

from tests.compression import compressed
from tests.processes import Service

pytestmark = pytest.mark.slow

MESSAGES = [{"role": "user", "content": "Hi"}]
CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"
TOOL = {"type": "function", "function": {"name": "f"}}
OPTIONS = {"mm_processor_kwargs": {"a": 1}}
NESTED = '{"a":' * 5000 + "1" + "}" * 5000


@pytest.mark.parametrize(
    ("path", "body", "status", "param", "words"),
    [
        (CHAT, {"messages": MESSAGES, "model": "other"}, 404, "model", "does not exist"),
        (CHAT, {"messages": []}, 400, "messages", "empty"),
        (CHAT, {"messages": "hello"}, 400, "messages", "list"),
        (CHAT, {}, 400, "messages", "required"),
        (CHAT, {"messages": MESSAGES, "temperature": "hot"}, 400, "temperature", "number"),
        (CHAT, {"messages": MESSAGES, "temperature": 3}, 400, "temperature", "[0, 2]"),
        (CHAT, {"messages": MESSAGES, "temperature": -1}, 400, "temperature", "non-negative"),
        (CHAT, {"messages": MESSAGES, "top_p": 0}, 400, "top_p", "(0, 1]"),
        (CHAT, {"messages": MESSAGES, "presence_penalty": 9}, 400, "presence_penalty", "[-2, 2]"),
        (CHAT, {"messages": MESSAGES, "max_tokens": 0}, 400, "max_tokens", "at least 1"),
        (CHAT, {"messages": MESSAGES, "max_tokens": 100_000}, 400, "max_tokens", "max_model_len=2048"),
        (CHAT, {"messages": MESSAGES, "max_completion_tokens": 10**18}, 400, "max_completion_tokens", "greater"),
        (CHAT, {"messages": MESSAGES, "min_tokens": 5, "max_tokens": 4}, 400, "min_tokens", "max_tokens=4"),
        (CHAT, {"messages": MESSAGES, "stop": ["a"] * 5}, 400, "stop", "at most 4"),
        (CHAT, {"messages": MESSAGES, "stop": ""}, 400, "stop", "empty string"),
        (CHAT, {"messages": MESSAGES, "stop": ["a", ""]}, 400, "stop", "empty string"),
        (CHAT, {"messages": MESSAGES, **OPTIONS}, 400, "mm_processor_kwargs", "--trust-request-mm-kwargs"),
        ("/tokenize", {"messages": MESSAGES, **OPTIONS}, 400, "mm_processor_kwargs", "--trust-request-mm-kwargs"),
        ("/v1/responses", {"input": "Hi", **OPTIONS}, 400, "mm_processor_kwargs", "--trust-request-mm-kwargs"),
        (CHAT, {"messages": MESSAGES, "n": 0}, 400, "n", "n must be"),
        (CHAT, {"messages": MESSAGES, "n": 2, "temperature": 0}, 400, "n", "greedy"),
        (CHAT, {"messages": MESSAGES, "stop_token_ids": [-1]}, 400, "stop_token_ids", "out-of-vocab"),
        (CHAT, {"messages": MESSAGES, "stop_token_ids": [10**6]}, 400, "stop_token_ids", "out-of-vocab"),
        (CHAT, {"messages": MESSAGES, "logit_bias": {"x": 1}}, 400, "logit_bias", "integer"),
        (TEXT, {"prompt": "x", "logit_bias": {f"k{i}": 0 for i in range(9999)}}, 400, "logit_bias", "'k0', 'k1'"),
        (TEXT, {"prompt": "x", "logit_bias": {f"{i}": 0 for i in range(10_001)}}, 400, "logit_bias", "more than"),
        (CHAT, {"messages": MESSAGES, "seed": 2**70}, 400, "seed", "less than"),
        (CHAT, {"messages": MESSAGES, "stream_options": {"include_usage": True}}, 400, "stream_options", "stream=True"),
        (CHAT, {"messages": MESSAGES, "top_logprobs": 2}, 400, "top_logprobs", "must be set to true"),
        (
            CHAT,
            {"messages": MESSAGES, "response_format": {"type": "json_schema"}},
            400,
            "response_format",
            "json_schema",
        ),
        (CHAT, {"messages": [{"role": "user", "content": "x " * 3000}]}, 400, "input_tokens", "maximum context length"),
        (CHAT, {"messages": [{"content": "x"}]}, 400, "messages", "role"),
        (CHAT, {"messages": MESSAGES * 10_001}, 400, "messages", "more than 10000"),
        (CHAT, {"messages": MESSAGES, "tools": [TOOL] * 1025, "tool_choice": "none"}, 400, "tools", "At most 1024"),
        (
            CHAT,
            {"messages": MESSAGES, "structured_outputs": {"regex": "a{1,100001}"}},
            400,
            "structured_outputs.regex",
            "100001 times, more than 100000",
        ),
        (TEXT, {"prompt": ["a"] * 2, "n": 16_384}, 400, "n", "exceeds 16384 sequences"),
        (TEXT, {"prompt": [[1]] * 16_385}, 400, "prompt", "more than 16384"),
        ("/generate/", {"prompts": ["a"] * 16_385}, 400, "prompts", "more than 16384"),
        ("/chat/", {"messages": [[{}]] * 16_385}, 400, "messages", "more than 16384"),
        ("/generate", {"input_ids": [[1]] * 16_385}, 400, "input_ids", "more than 16384"),
        ("/generate", {"text": "x", "sampling_params": {"stop": ["b"] * 129}}, 400, "stop", "more than 128"),
        ("/get_sequence_logprobs/", {"sequences": [[1]] * 16_385, "prompt_lengths": []}, 400, "sequences", "more than"),
        (TEXT, {"prompt": "x", "allowed_token_ids": [1] * 393_217}, 400, "allowed_token_ids", "more than 393216"),
        ("/v1/responses", {"input": "x", "user": "u" * 513}, 400, "user", "at most 512"),
        ("/v1/responses", {"input": "x", "safety_identifier": "u" * 513}, 400, "safety_identifier", "at most 512"),
        ("/v1/responses", {"input": "x", "prompt_cache_key": "u" * 513}, 400, "prompt_cache_key", "at most 512"),
        ("/v1/responses", {"input": "x", "metadata": {"a": "u" * 513}}, 400, "metadata", "at most 512"),
        ("/v1/responses", {"input": "x", "metadata": {"a" * 65: "u"}}, 400, "metadata", "at most 64"),
        ("/v1/responses", {"input": "x", "metadata": {f"{i}": "u" for i in range(17)}}, 400, "metadata", "at most 16"),
        (
            CHAT,
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
            400,
            "messages",
            "image_url",
        ),
        (TEXT, {"prompt": []}, 400, "prompt", "at least one prompt"),
        (TEXT, {"prompt": ""}, 400, "prompt", "empty"),
        (TEXT, {"prompt": [-1]}, 400, "prompt", "out of vocabulary"),
        (TEXT, {"prompt": [10**6]}, 400, "prompt", "out of vocabulary"),
        (TEXT, {"prompt": [10**30]}, 400, "prompt", ""),
        (TEXT, {"prompt": [[1], []]}, 400, "prompt", "empty"),
        (TEXT, {"prompt": [1] * 2048}, 400, "input_tokens", "maximum model length"),
        (TEXT, {"prompt": "x", "logprobs": -2}, 400, "logprobs", "positive value or -1"),
        (TEXT, {"prompt": "x", "suffix": "y"}, 400, "suffix", "only supported for"),
        (TEXT, {"prompt": "x", "best_of": 2}, 400, "best_of", "not supported"),
        (TEXT, {"prompt": {"a": 1}}, 400, "prompt", ""),
        ("/tokenize", {}, 400, "prompt", "Either"),
        ("/tokenize", {"prompt": "x", "messages": MESSAGES}, 400, "prompt", "Either"),
        ("/detokenize", {"tokens": [-1]}, 400, "tokens", "out of vocabulary"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_wrong_requests_are_named(
    service: Service, path: str, body: dict[str, Any], status: int, param: str, words: str, stream: bool
) -> None:
    """An invalid field gets OpenAI's error object with its name, streamed or not, and reaches no worker."""
    before = [service.server_info(number).generated_tokens for number in range(2)]
    if stream and path in (CHAT, TEXT) and "stream_options" not in body:
        body = {**body, "stream": True}

    response = httpx.post(service.url + path, json=body)

    error = response.json()["error"]
    assert response.status_code == status == error["code"]
    assert error["param"].startswith(param)
    assert words in error["message"]
    assert [service.server_info(number).generated_tokens for number in range(2)] == before


@pytest.mark.parametrize(
    ("path", "body", "count"),
    [
        (TEXT, {"prompt": [{}] * 16_000}, 4),
        (TEXT, {"prompt": "x", "bad_words": [0] * 50_000}, 1),
        (TEXT, {"prompt": "x", "temperature": "x" * 1_000_000}, 1),
        (TEXT, {"prompt": "x", "logit_bias": {f"{i}" + "y" * 1000: {} for i in range(1000)}}, 1),
        (CHAT, {"messages": [0] * 50_000}, 1),
        (CHAT, {"messages": MESSAGES, "tools": [0] * 50_000}, 1),
        ("/detokenize", {"tokens": [{}] * 50_000}, 1),
        ("/generate/", {"prompts": [{}] * 16_000}, 2),
        ("/generate/", {"prompts": ["x"], "generation_kwargs": {"stop_token_ids": [{}] * 16_000}}, 1),
        ("/v1/messages", {"model": "sim", "max_tokens": 1, "messages": [0] * 50_000}, 1),
        ("/v1/responses", {"input": "x", "bad_words": [0] * 50_000}, 1),
    ],
)
def test_repeated_mistakes_are_one_error(service: Service, path: str, body: dict[str, Any], count: int) -> None:
    """For each type that a field may have; the response is short for any body."""
    response = httpx.post(service.url + path, json=body)

    assert response.status_code == 400
    assert response.json()["error"]["message"].startswith(f"{count} validation error")
    assert len(response.content) < 5000


def test_malformed_json_is_a_400(service: Service) -> None:
    """A body that is not JSON gets a 400 in OpenAI's format."""
    response = httpx.post(service.url + CHAT, content=b'{"messages": [', headers={"content-type": "application/json"})

    assert response.status_code == 400
    assert "JSON" in response.json()["error"]["message"]


def test_another_media_type_is_a_400(service: Service) -> None:
    """The error of a form or a text states the expected type, and nothing of the implementation."""
    response = httpx.post(service.url + CHAT, content=b"messages=x", headers={"content-type": "text/plain"})

    assert response.status_code == 400
    assert "Only 'application/json' is allowed" in response.json()["error"]["message"]


def test_a_body_over_the_limit_is_a_413(service: Service) -> None:
    """A huge body is rejected by its declared length, before it is read."""
    response = httpx.post(service.url + CHAT, content=b"x" * (33 * 1024 * 1024))

    assert response.status_code == 413
    assert "has 34603008 bytes, more than 33554432 (--max-body-mb)" in response.json()["error"]["message"]


def test_a_chunked_body_over_the_limit_is_a_413(service: Service) -> None:
    """A body without a declared length is counted while it is received."""
    response = httpx.post(service.url + CHAT, content=(b"x" * 2**20 for _ in range(40)))

    assert response.status_code == 413
    assert "more than 33554432 bytes (--max-body-mb)" in response.json()["error"]["message"]


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_a_compressed_body_is_served(service: Service, coding: str) -> None:
    """A bomb of some kilobytes ends at the limit; a coding that nobody reads is a 415."""
    body = b'{"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}'
    headers = {"content-type": "application/json", "content-encoding": coding}
    url = service.url + CHAT

    assert httpx.post(url, content=compressed(body, coding.encode()), headers=headers).status_code == 200
    bomb = httpx.post(url, content=compressed(bytes(2**26), coding.encode()), headers=headers)
    assert (bomb.status_code, "when decompressed" in bomb.text) == (413, True)
    other = httpx.post(url, content=body, headers={**headers, "content-encoding": "br"})
    assert (other.status_code, other.headers["accept-encoding"]) == (415, "gzip, zstd")


def test_unknown_routes_and_methods_have_the_same_format(service: Service) -> None:
    """404 and 405 are OpenAI errors too."""
    assert httpx.get(f"{service.url}/nowhere").json()["error"]["code"] == 404
    assert httpx.get(service.url + CHAT).json()["error"]["code"] == 405


def test_unknown_fields_are_ignored_and_logged_once(service: Service) -> None:
    """They have no effect."""
    body = {"messages": MESSAGES, "max_tokens": 1, "frobnicate": 1}

    answers = [httpx.post(service.url + CHAT, json=body).status_code for _ in range(3)]

    assert answers == [200, 200, 200]
    assert service.coordinator.log.count("frobnicate") == 1


@pytest.mark.parametrize("path", [CHAT, TEXT, "/v1/responses", "/v1/messages", "/inference/v1/generate"])
def test_a_body_that_is_nested_too_deeply_is_rejected(service: Service, path: str) -> None:
    """By any parser."""
    answer = httpx.post(f"{service.url}{path}", content=NESTED, headers={"content-type": "application/json"})

    assert answer.status_code == 400
    assert "nested too deeply" in answer.json()["error"]["message"]


def test_json_in_strings_that_is_nested_too_deeply_is_rejected(service: Service) -> None:
    """Such as arguments of an earlier tool call."""
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": NESTED}}
    messages = [*MESSAGES, {"role": "assistant", "content": "", "tool_calls": [call]}]

    answer = httpx.post(f"{service.url}{CHAT}", json={"messages": messages})

    assert answer.status_code == 400
    assert "nested too deeply" in answer.json()["error"]["message"]
