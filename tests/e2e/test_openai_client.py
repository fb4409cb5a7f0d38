"""The real `openai` client with real processes."""

from typing import Any

import httpx
import pytest
from openai import OpenAI

from tests.processes import Service

MESSAGES: list[Any] = [{"role": "user", "content": "Say something."}]


def create_chat(client: OpenAI, **options: Any) -> Any:
    """Create a chat completion; extensions of vLLM go into extra_body."""
    return client.chat.completions.create(**{"model": "sim", "messages": MESSAGES, "max_tokens": 24, **options})


def test_a_chat_completion_is_complete(client: OpenAI) -> None:
    """It has text, a finish reason and usage."""
    answer = create_chat(client)

    choice = answer.choices[0]
    assert choice.message.role == "assistant"
    assert choice.message.content
    assert choice.finish_reason == "length"
    assert answer.usage.completion_tokens == 24
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + 24
    assert answer.id.startswith("chatcmpl-")


def test_streamed_text_equals_full_text(client: OpenAI) -> None:
    """Deltas join to the text of the same request without streaming."""
    full = create_chat(client, temperature=0, max_tokens=60).choices[0].message.content

    chunks = list(create_chat(client, temperature=0, max_tokens=60, stream=True))

    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == full
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [chunk.choices[0].finish_reason for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert chunks[-1].choices[0].finish_reason == "length"


def test_stream_usage_comes_last_and_only_if_requested(client: OpenAI) -> None:
    """include_usage adds one last chunk without choices; no other chunk has usage."""
    chunks = list(create_chat(client, stream=True, stream_options={"include_usage": True}))

    assert chunks[-1].choices == []
    assert chunks[-1].usage.completion_tokens == 24
    assert all(chunk.usage is None for chunk in chunks[:-1])


def test_continuous_usage_counts_up(client: OpenAI) -> None:
    """With continuous_usage_stats every chunk has the count so far."""
    options = {"include_usage": True, "continuous_usage_stats": True}

    chunks = list(create_chat(client, stream=True, stream_options=options))

    counts = [chunk.usage.completion_tokens for chunk in chunks]
    assert counts[0] == 0
    assert counts == sorted(counts)
    assert counts[-1] == 24


def test_n_choices_differ_and_are_numbered(client: OpenAI) -> None:
    """n independent choices with indices from 0."""
    answer = create_chat(client, n=3, seed=7)

    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    assert len({choice.message.content for choice in answer.choices}) == 3
    assert answer.usage.completion_tokens == 3 * 24


def test_streamed_choices_equal_full_ones(client: OpenAI) -> None:
    """A stream with n > 1 has every choice's deltas under its index."""
    full = [choice.message.content for choice in create_chat(client, n=3, seed=7).choices]
    texts = ["", "", ""]

    for chunk in create_chat(client, n=3, seed=7, stream=True):
        texts[chunk.choices[0].index] += chunk.choices[0].delta.content or ""

    assert texts == full


def test_stop_string_ends_the_text_before_it(client: OpenAI) -> None:
    """A stop string is removed from the text, is the stop_reason, and counts in usage up to its last token."""
    full = create_chat(client, temperature=0, max_tokens=60).choices[0].message.content
    stop = full[20:23]

    answer = create_chat(client, temperature=0, max_tokens=60, stop=[stop])

    choice = answer.choices[0]
    assert choice.message.content == full[: full.index(stop)]
    assert choice.finish_reason == "stop"
    assert choice.stop_reason == stop
    assert answer.usage.completion_tokens < 60


def test_token_ids_are_returned_if_requested(client: OpenAI, service: Service) -> None:
    """return_token_ids adds prompt and completion ids, which detokenize to the text."""
    answer = create_chat(client, temperature=0, extra_body={"return_token_ids": True})

    ids = answer.choices[0].token_ids
    text = httpx.post(f"{service.url}/detokenize", json={"tokens": ids}).json()["prompt"]
    assert text == answer.choices[0].message.content
    assert len(answer.prompt_token_ids) == answer.usage.prompt_tokens


def test_streamed_token_ids_are_complete(client: OpenAI) -> None:
    """The prompt's ids come first, and each chunk has the ids of its tokens."""
    full = create_chat(client, temperature=0, extra_body={"return_token_ids": True})

    chunks = list(create_chat(client, temperature=0, stream=True, extra_body={"return_token_ids": True}))

    ids = [token_id for chunk in chunks for token_id in (getattr(chunk.choices[0], "token_ids", None) or [])]
    assert ids == full.choices[0].token_ids
    assert chunks[0].prompt_token_ids == full.prompt_token_ids


def test_completions_accept_every_form_of_prompt(client: OpenAI) -> None:
    """Text, ids and lists of either result in one choice per prompt, in order."""
    texts = ["one", "two"]
    separate = [client.completions.create(model="sim", prompt=text, temperature=0).choices[0].text for text in texts]

    together = client.completions.create(model="sim", prompt=texts, temperature=0)
    ids = client.completions.create(model="sim", prompt=[[1, 2, 3], [1, 2, 3]], temperature=0)

    assert [choice.text for choice in together.choices] == separate
    assert [choice.index for choice in together.choices] == [0, 1]
    assert together.usage is not None
    assert together.usage.completion_tokens == 32
    assert ids.choices[0].text == ids.choices[1].text


def test_streamed_completion_equals_the_full_one(client: OpenAI) -> None:
    """On the completions route."""
    full = client.completions.create(model="sim", prompt="one", temperature=0, max_tokens=40)

    chunks = list(client.completions.create(model="sim", prompt="one", temperature=0, max_tokens=40, stream=True))

    assert "".join(chunk.choices[0].text for chunk in chunks) == full.choices[0].text
    assert chunks[-1].choices[0].finish_reason == "length"


def test_max_tokens_absent_means_the_rest_of_the_context(client: OpenAI) -> None:
    """A chat without max_tokens may fill the context."""
    answer = client.chat.completions.create(model="sim", messages=MESSAGES, temperature=0)

    assert answer.usage is not None
    assert answer.usage.total_tokens == 2048
    assert answer.choices[0].finish_reason == "length"


def test_models_are_listed_with_their_length(client: OpenAI) -> None:
    """/v1/models has every served name, each with max_model_len."""
    models = client.models.list().data

    assert [model.id for model in models] == ["sim", "alias"]
    assert models[0].model_extra is not None
    assert models[0].model_extra["max_model_len"] == 2048


def test_responses_have_the_first_name_of_a_model(client: OpenAI) -> None:
    """Requests may use any served name."""
    assert create_chat(client, model="alias").model == "sim"


@pytest.mark.parametrize("form", [{"prompt": "hello"}, {"messages": MESSAGES}])
def test_tokenize_and_back(service: Service, form: dict[str, Any]) -> None:
    """/tokenize returns ids, count and strings; /detokenize returns the text of ids."""
    answer = httpx.post(f"{service.url}/tokenize", json={**form, "return_token_strs": True}).json()

    assert answer["count"] == len(answer["tokens"]) == len(answer["token_strs"])
    assert answer["max_model_len"] == 2048
    text = httpx.post(f"{service.url}/detokenize", json={"tokens": answer["tokens"]}).json()["prompt"]
    assert form.get("prompt", "Say something.") in text


def test_requests_are_spread_over_the_workers(client: OpenAI, service: Service) -> None:
    """Idle workers take turns."""
    before = [service.server_info(number).generated_tokens for number in range(2)]

    for _ in range(4):
        create_chat(client)

    after = [service.server_info(number).generated_tokens for number in range(2)]
    assert [later - earlier for earlier, later in zip(before, after, strict=True)] == [48, 48]
