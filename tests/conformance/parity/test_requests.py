"""The requests themselves: repeatable, named apart, and about every field that vLLM knows."""

import json

import pytest

from tests.conformance.parity import fields
from tests.conformance.parity.corpus import corpus
from tests.conformance.parity.generator import generate
from tests.conformance.parity.request import CHAT, TEXT


def test_a_drawn_request_is_known_by_seed_and_number() -> None:
    """The same seed and number draw the same request; others draw others."""
    drawn = {json.dumps(generate(1, number).body) for number in range(200)}

    assert generate(3, 14).content() == generate(3, 14).content()
    assert generate(3, 14).content() != generate(4, 14).content()
    assert len(drawn) > 190


def test_drawn_requests_are_repeatable_by_the_server() -> None:
    """No request is sampled without a seed, and none runs for long."""
    for number in range(2000):
        body = generate(1, number).body
        assert body["temperature"] == 0 or body["seed"] is not None
        assert body.get("max_tokens") is not None or body.get("max_completion_tokens") is not None


def test_drawn_requests_are_of_all_kinds() -> None:
    """Both routes, streamed and not, and many different fields."""
    requests = [generate(1, number) for number in range(300)]

    assert generate(1, 1, "parsers").body != generate(1, 1).body
    assert {(request.route, request.streamed) for request in requests} == {
        (route, streamed) for route in ("chat", "completions") for streamed in (True, False)
    }
    assert len({name for request in requests for name in request.body}) > 60


def test_written_requests_have_names_of_their_own() -> None:
    """A name stands for one request, and bodies are JSON or bytes."""
    requests = corpus()

    assert len({request.name for request in requests}) == len(requests)
    assert all(request.content() is not None for request in requests)


@pytest.mark.engine
@pytest.mark.parametrize("path", [CHAT, TEXT])
def test_every_field_of_vllms_has_requests(path: str) -> None:
    """Each field of vLLM's request is in a written request that is answered or refused, and in what is drawn."""
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
    from vllm.entrypoints.openai.completion.protocol import CompletionRequest

    known = set((ChatCompletionRequest if path == CHAT else CompletionRequest).model_fields)
    refused = {name for request in corpus() if request.path == path and request.refused for name in request.body}
    answered = {name for request in corpus() if request.path == path and not request.refused for name in request.body}
    route = fields.CHAT_ONLY + fields.INVALID_CHAT if path == CHAT else fields.TEXT_ONLY + fields.INVALID_TEXT
    drawn = {name for fragment in fields.COMMON + fields.INVALID_COMMON + route for name in fragment}
    base = {"messages", "prompt", "temperature", "seed", "n", "stream", "stream_options", "model", "max_tokens"}

    assert known - refused == set()
    assert known - answered <= {"suffix", "prompt_embeds"}  # the embedded model can do neither
    assert known - drawn - base == set()
