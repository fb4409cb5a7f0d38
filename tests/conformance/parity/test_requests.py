"""The requests are reproducible, have unique names, and cover every field of vLLM."""

import json

import pytest

from tests.conformance.parity import fields
from tests.conformance.parity.corpus import corpus
from tests.conformance.parity.generator import generate_request
from tests.conformance.parity.request import CHAT, TEXT


def test_a_random_request_is_reproducible() -> None:
    """By its seed and number; others differ."""
    drawn = {json.dumps(generate_request(1, number).body) for number in range(200)}

    assert generate_request(3, 14).content() == generate_request(3, 14).content()
    assert generate_request(3, 14).content() != generate_request(4, 14).content()
    assert len(drawn) > 190


def test_responses_to_random_requests_are_reproducible() -> None:
    """No request is sampled without a seed, and none is long."""
    for number in range(2000):
        body = generate_request(1, number).body
        assert body["temperature"] == 0 or body["seed"] is not None
        assert body.get("max_tokens") is not None or body.get("max_completion_tokens") is not None


def test_random_requests_are_of_all_kinds() -> None:
    """Both routes, streamed and not, and many different fields."""
    requests = [generate_request(1, number) for number in range(300)]

    assert generate_request(1, 1, "parsers").body != generate_request(1, 1).body
    assert {(request.route, request.streamed) for request in requests} == {
        (route, streamed) for route in ("chat", "completions") for streamed in (True, False)
    }
    assert len({name for request in requests for name in request.body}) > 60


def test_written_requests_have_unique_names() -> None:
    """And bodies that are JSON or bytes."""
    requests = corpus()

    assert len({request.name for request in requests}) == len(requests)
    assert all(request.content() is not None for request in requests)


@pytest.mark.engine
@pytest.mark.parametrize("path", [CHAT, TEXT])
def test_every_field_of_vllms_has_requests(path: str) -> None:
    """Each field is in a written request that is accepted or rejected, and in random ones."""
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
    from vllm.entrypoints.openai.completion.protocol import CompletionRequest

    known = set((ChatCompletionRequest if path == CHAT else CompletionRequest).model_fields)
    rejected = {name for request in corpus() if request.path == path and request.rejected for name in request.body}
    answered = {name for request in corpus() if request.path == path and not request.rejected for name in request.body}
    route = fields.CHAT_ONLY + fields.INVALID_CHAT if path == CHAT else fields.TEXT_ONLY + fields.INVALID_TEXT
    drawn = {name for fragment in fields.COMMON + fields.INVALID_COMMON + route for name in fragment}
    base = {"messages", "prompt", "temperature", "seed", "n", "stream", "stream_options", "model", "max_tokens"}

    assert known - rejected == set()
    assert known - answered <= {"suffix", "prompt_embeds"}  # the embedded model can do neither
    assert known - drawn - base == set()
