"""Chat completions."""

import json
import threading
from pathlib import Path
from typing import Any

from tests.coordinator.api.applications import served
from tests.coordinator.api.replies import ScriptedPlan, call_of, choice_of
from tokenwire.coordinator.api.openai.chat import ChatCall, full_response, parse_choices
from tokenwire.coordinator.output.collect import CollectedChoice
from tokenwire.coordinator.output.settings import ApiSettings
from tokenwire.coordinator.parsing.message import MOST_INLINE
from tokenwire.coordinator.parsing.rules import MessageRules

MESSAGES = [{"role": "user", "content": "Hi"}]


async def test_a_stream_joins_to_the_full_response(tmp_path: Path) -> None:
    """The same text, finish and usage."""
    requested = {"messages": MESSAGES, "max_tokens": 6, "temperature": 0}
    options = {"stream": True, "stream_options": {"include_usage": True}}
    async with served(tmp_path) as client:
        full = (await client.post("/v1/chat/completions", json=requested)).json()
        stream = await client.post("/v1/chat/completions", json={**requested, **options})

    *events, done, end = stream.text.split("\n\n")
    chunks = [json.loads(event.removeprefix("data: ")) for event in events]
    (choice,) = full["choices"]
    assert (done, end) == ("data: [DONE]", "")
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks[:-1]]
    assert "".join(delta.get("content", "") for delta in deltas) == choice["message"]["content"]
    assert chunks[-2]["choices"][0]["finish_reason"] == choice["finish_reason"] == "length"
    assert chunks[-1]["usage"].items() <= full["usage"].items()


async def full_response_of(call: ChatCall, choices: list[CollectedChoice]) -> dict[str, Any]:
    """Return a full response with its choices."""
    response = await full_response(call, choices)
    return {**response, "choices": list(response["choices"])}


async def test_a_full_response_has_what_was_requested() -> None:
    """Ids, weight versions and the prompt only on request."""
    plain = await full_response_of(call_of(), [choice_of("a")])
    requested = await full_response_of(
        call_of(return_token_ids=True, return_prompt_text=True), [choice_of("a", tokens=2)]
    )

    assert (plain["id"], plain["object"], plain["model"]) == ("id-1", "chat.completion", "digits")
    assert plain["choices"][0]["message"] == {
        "role": "assistant", "content": "a", "refusal": None, "annotations": None, "audio": None,
        "function_call": None, "reasoning": None,
    }  # fmt: skip
    assert (plain["choices"][0]["token_ids"], plain["prompt_token_ids"], plain["prompt_text"]) == (None, None, None)
    assert "weight_versions" not in plain["choices"][0]
    assert (requested["choices"][0]["token_ids"], requested["prompt_token_ids"]) == ([0, 1], [1, 2])
    assert requested["prompt_text"] == "one two"
    assert requested["choices"][0]["weight_versions"] is None


async def test_an_echo_comes_before_the_content() -> None:
    """Of the message that the reply continues."""
    call = call_of(echo=True)
    call.body.messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "one two"}]

    answer = await full_response_of(call, [choice_of(" three")])

    assert answer["choices"][0]["message"]["content"] == "one two three"


async def test_usage_counts_all_choices() -> None:
    """Cached tokens if the server reports them, and a parser's reasoning tokens."""
    _, usage = await parse_choices(call_of([None]), [choice_of("a", tokens=4), choice_of("b", tokens=2)])
    _, detailed = await parse_choices(call_of(api=ApiSettings(prompt_tokens_details=True)), [choice_of("a")])

    assert (usage.prompt_tokens, usage.completion_tokens, usage.reasoning_tokens) == (2, 6, 3)
    assert (usage.cached_tokens, detailed.cached_tokens) == (None, 1)


async def test_a_long_reply_is_parsed_in_a_thread() -> None:
    """A parser may take a second for it, which others need not wait for."""
    call, threads = call_of([None]), list[int]()
    assert isinstance(call.plan, ScriptedPlan)
    call.plan.on_parser = lambda: threads.append(threading.get_ident())
    for tokens in (MOST_INLINE, MOST_INLINE + 1):
        await parse_choices(call, [choice_of("a", tokens=tokens)])

    assert [thread == threading.get_ident() for thread in threads] == [True, False]


async def test_hidden_reasoning_hides_ids_and_log_probabilities() -> None:
    """They would reveal it."""
    call = call_of([None], logprobs=True, return_token_ids=True)
    assert isinstance(call.plan, ScriptedPlan)
    call.plan.rules = MessageRules(tool_choice="auto", parses_tools=True, include_reasoning=False)

    (choice,) = (await full_response_of(call, [choice_of("a")]))["choices"]

    assert (choice["token_ids"], choice["logprobs"]) == (None, None)
