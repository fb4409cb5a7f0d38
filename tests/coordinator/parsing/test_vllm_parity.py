"""Messages equal those of vLLM's own chat route for the same ids, streamed in any steps and full.

Streamed and full results of one parser differ by themselves in places: qwen3_coder and deepseek_v3 drop white space
before a call only in full ones, openai reformats arguments, cut calls show only when streamed. So each is held
against vLLM's own. Streams are held against vLLM's of single tokens: in larger steps vLLM itself loses names and
arguments with deepseek_v3, llama3_json and deepseek_r1. Reasoning tokens are held against vLLM's full count: streamed
one by one, it does not count the first tokens of a character that has several. A call that was cut shows in full
messages as in streams, unlike vLLM's.
"""

import asyncio
import json
import random
from copy import copy
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest

from tests.coordinator.parsing import loaded
from tests.coordinator.parsing.outputs import HISTORY, OutputCase, chat_body, output_cases
from tests.coordinator.parsing.vllm_server import VllmChatRoute, add_up
from tests.tokenizers import npm_tokenizer_files
from tokenwire.coordinator.api.openai.message import delta_object
from tokenwire.coordinator.parsing.batching import ParserBudget
from tokenwire.coordinator.parsing.held_calls import HELD_TOOLS
from tokenwire.coordinator.parsing.message import MessageDelta, MessageParser, ParserPlan, merge
from tokenwire.coordinator.text.detokenizer import TextRules, TextStreams
from tokenwire.coordinator.text.tokenizer import ModelTokenizer

if TYPE_CHECKING:
    from tokenwire.coordinator.parsing.vllm_parsers import VllmParsers

pytestmark = [pytest.mark.engine, pytest.mark.npm, pytest.mark.filterwarnings("ignore")]

CASES = output_cases(60)
MODEL_TYPES = {"gptoss": "gpt_oss", "qwen3": "qwen3"}
END = {"qwen3": "<|im_end|>", "llama3_1": "<|eot_id|>", "llama3_2": "<|eot_id|>", "mistral_nemo": "</s>"}
END["deepseek_v3"] = "<｜end▁of▁sentence｜>"

PACES = {
    "never": ParserBudget(per_token_s=float("inf")),
    "as-configured": ParserBudget(),
    # As if every call took long, and no time passed between tokens.
    "always": ParserBudget(per_token_s=0.0, cpu_clock=iter(range(10**9)).__next__, wall_clock=lambda: 0.0),
}


def parsers_for(name: str, budget: str) -> "VllmParsers":
    """Load the parsers of a case, shared by cases because loading is slow."""
    case = CASES[name]
    parsers = copy(loaded.parsers(case.settings.tool_call_parser, case.settings.reasoning_parser, case.tokenizer))
    parsers.budget = PACES[budget]
    return parsers


@cache
def tokenizer_for(name: str) -> ModelTokenizer:
    """Return the coordinator's own tokenizer."""
    return ModelTokenizer.from_files(npm_tokenizer_files(name))


@cache
def vllm_for(name: str) -> VllmChatRoute:
    """Return vLLM's route for a case."""
    case = CASES[name]
    return VllmChatRoute(case, parsers_for(name, "never").tokenizer, MODEL_TYPES.get(case.tokenizer))


def ids_of(case: OutputCase) -> list[int]:
    """Return the output's ids, with EOS if the model ended it."""
    tokenizer = tokenizer_for(case.tokenizer)
    text = case.output + (END.get(case.tokenizer, "") if case.reason == "stop" else "")
    return tokenizer.encode(text, add_special_tokens=False)


async def vllm_result(name: str, full: bool) -> dict[str, Any]:
    """Return vLLM's message."""
    case, server = CASES[name], vllm_for(name)
    request, _ = await server.render(case.body)
    ids, prompt = ids_of(case), [1, 2, 3]
    if full:
        return await server.full(request, prompt, ids, case.reason)
    return await server.stream(request, prompt, [[token_id] for token_id in ids], case.reason)


@cache
def vllm_stream(name: str) -> dict[str, Any]:
    """Return vLLM's streamed message, once for all tests."""
    full = asyncio.run(vllm_result(name, full=True))
    return asyncio.run(vllm_result(name, full=False)) | {"reasoning_tokens": full["reasoning_tokens"]}


def plan_for(name: str, budget: str) -> ParserPlan:
    """Return our plan for a case."""
    plan = loaded.plan_of(parsers_for(name, budget), CASES[name].body)
    assert plan is not None
    return plan


def feed(parser: MessageParser, texts: Any, step: list[int], eos: bool, finished: bool) -> MessageDelta | None:
    """Feed one engine step token by token, as a choice does."""
    delta = None
    for position, token_id in enumerate(step, 1):
        last = position == len(step)
        text, _, _ = texts.step([token_id], eos and last, finished and last)
        delta = merge(delta, parser.delta(text, [token_id], finished and last))
    return delta


def our_stream(name: str, budget: str, steps: list[list[int]]) -> dict[str, Any]:
    """Stream through our parsers and join the deltas."""
    case, plan = CASES[name], plan_for(name, budget)
    rules = TextRules(skip_special_tokens=plan.skip_special_tokens)
    texts, parser = TextStreams(tokenizer_for(case.tokenizer), rules).stream([1, 2, 3]), plan.parser([1, 2, 3])
    chunks: list[dict[str, Any]] = []
    for index, step in enumerate(steps):
        last = index == len(steps) - 1
        delta = feed(parser, texts, step, last and case.reason == "stop", last)
        shown = delta_object(delta) if delta else {}
        finish = parser.finish_reason(case.reason) if last else None
        chunks.append({"choices": [{"delta": shown, "finish_reason": finish}]})
    message = add_up(chunks)
    if parsers_for(name, budget).counts_reasoning:
        message["reasoning_tokens"] = parser.reasoning_tokens([token_id for step in steps for token_id in step])
    return message


def without_space(name: str, message: dict[str, Any]) -> dict[str, Any]:
    """Return a message without space at the ends of its content, if the parser is held: vLLM streams that of calls."""
    if CASES[name].settings.tool_call_parser not in HELD_TOOLS:
        return message
    return message | {"content": message["content"].strip()}


@pytest.mark.parametrize("budget", PACES)
@pytest.mark.parametrize("name", CASES)
def test_streams_equal_vllms(name: str, budget: str) -> None:
    """Token by token, with any batching."""
    ours = our_stream(name, budget, [[token_id] for token_id in ids_of(CASES[name])])
    assert without_space(name, ours) == without_space(name, vllm_stream(name))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", CASES)
def test_streams_do_not_depend_on_step_sizes(name: str, seed: int) -> None:
    """Merged frames and frames of speculative decoding change nothing."""
    ids, pick = ids_of(CASES[name]), random.Random(f"{name}{seed}")
    longest, steps = pick.choice([2, 7, 50]), []
    while ids:
        count = pick.randint(1, longest)
        steps.append(ids[:count])
        ids = ids[count:]
    ours = our_stream(name, pick.choice(list(PACES)), steps)
    assert without_space(name, ours) == without_space(name, vllm_stream(name))


@pytest.mark.parametrize("name", CASES)
def test_full_messages_equal_vllms(name: str) -> None:
    """Content, null or empty, reasoning, calls, finish reason and reasoning tokens."""
    case, plan = CASES[name], plan_for(name, "as-configured")
    ids = ids_of(case)
    rules = TextRules(skip_special_tokens=plan.skip_special_tokens)
    text = TextStreams(tokenizer_for(case.tokenizer), rules).stream([1, 2, 3]).step(ids, case.reason == "stop", True)[0]
    parser = plan.parser([1, 2, 3])
    message = parser.full(text, ids, case.reason)
    ours = {
        "content": message.content,
        "reasoning": message.reasoning,
        "calls": [(call.name, call.arguments) for call in message.tool_calls],
        "finish": message.finish_reason,
        "reasoning_tokens": parser.reasoning_tokens(ids) if case.settings.reasoning_parser else None,
    }
    theirs = asyncio.run(vllm_result(name, full=True))
    if name == "hermes-cut":  # where vLLM returns the markup, the part of the call that it streams
        theirs = vllm_stream(name) | {"reasoning": None}
    assert ours == theirs


@pytest.mark.parametrize("name", CASES)
def test_requests_are_adjusted_as_in_vllm(name: str) -> None:
    """Special tokens, grammar and, with gpt-oss, the prompt equal those of vLLM's renderer."""
    plan = plan_for(name, "as-configured")
    request, prompt = asyncio.run(vllm_for(name).render(CASES[name].body))
    assert plan.skip_special_tokens == request.skip_special_tokens
    assert plan.spaces_between_special_tokens == request.spaces_between_special_tokens
    assert plan.prompt_token_ids == prompt
    constraint = plan.structured_outputs
    params = request.extract_structured_outputs()
    if params is None:
        assert constraint is None
    else:
        assert constraint is not None
        kind = constraint.WhichOneof("constraint") or ""
        theirs = getattr(params, {"json_schema": "json"}.get(kind, kind))
        ours = getattr(constraint, kind)
        assert json.loads(ours) == (json.loads(theirs) if isinstance(theirs, str) else theirs)


@pytest.mark.parametrize("prompt", ["<think>\n", "<think>\n\n</think>\n\n", "", "<think>x</think><|im_start|>"])
@pytest.mark.parametrize("name", ["qwen3", "qwen3-hidden", "deepseek_r1", "hermes"])
def test_reasoning_ended_equals_vllms(name: str, prompt: str) -> None:
    """It is resolved from the prompt."""
    server, ids = vllm_for(name), tokenizer_for("qwen3").encode("Hi" + prompt)
    request, _ = asyncio.run(server.render(CASES[name].body))
    kwargs = server.serving._effective_chat_template_kwargs(request)
    parser = server.serving._make_parser(request, server.tokenizer, kwargs)
    theirs = server.serving._engine_reasoning_kwargs(request, parser, kwargs, ids)
    plan = plan_for(name, "as-configured")
    ours = {"reasoning_ended": plan.reasoning_ended(ids), "reasoning_parser_kwargs": plan.reasoning_parser_kwargs}
    assert ours == theirs


def test_planning_does_not_change_the_body() -> None:
    """vLLM's validators rename and fill in fields of their input."""
    body = chat_body(messages=HISTORY)
    before = json.dumps(body)
    assert loaded.plan_of(parsers_for("hermes-qwen3", "never"), body) is not None
    assert json.dumps(body) == before


def test_requests_without_tools_need_no_plan() -> None:
    """Unless a parser must hide its own markup."""
    assert loaded.plan_of(parsers_for("hermes", "never"), chat_body(tools=False)) is None
    assert loaded.plan_of(parsers_for("qwen3_coder", "never"), chat_body(tools=False)) is not None
    assert loaded.plan_of(parsers_for("hermes-qwen3", "never"), chat_body(tools=False)) is not None


BAD = [
    {"tools": []},
    {"tool_choice": "sometimes"},
    {"tool_choice": {"type": "function"}},
    {"tool_choice": {"type": "function", "function": {}}},
    {"tool_choice": {"type": "function", "function": {"name": ""}}},
    {"tool_choice": {"type": "function", "function": {"name": "nothing"}}},
    {"tools": None, "tool_choice": "auto"},
]


@pytest.mark.parametrize("fields", BAD)
def test_invalid_tools_are_rejected_with_vllms_message(fields: dict[str, Any]) -> None:
    """Message and parameter of its validators."""
    from vllm.exceptions import VLLMValidationError

    from tokenwire.errors import InvalidRequest

    body = chat_body() | fields
    with pytest.raises(VLLMValidationError) as theirs:
        asyncio.run(vllm_for("hermes").render(body))
    with pytest.raises(InvalidRequest) as ours:
        loaded.plan_of(parsers_for("hermes", "never"), body)
    assert (ours.value.message, ours.value.param) == (theirs.value.args[0], theirs.value.parameter)


@pytest.mark.parametrize("choice", ["auto", "required", {"type": "function", "function": {"name": "write"}}])
def test_tools_without_a_tool_parser_are_rejected_with_vllms_message(choice: Any) -> None:
    """Only a reasoning parser is configured."""
    from tokenwire.errors import InvalidRequest

    body = chat_body(tool_choice=choice)
    with pytest.raises(ValueError, match="to be set") as theirs:
        asyncio.run(vllm_for("qwen3").render(body))
    with pytest.raises(InvalidRequest) as ours:
        loaded.plan_of(parsers_for("qwen3", "never"), body)
    assert ours.value.message == str(theirs.value)
