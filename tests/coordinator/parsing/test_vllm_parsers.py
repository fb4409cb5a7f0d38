"""Real parsers on continued messages: text after the reasoning is content, streamed and not."""

import json
import sys
from functools import cache
from typing import Any

import pytest

from tests.coordinator.parsing import loaded
from tests.tokenizers import npm_tokenizer_files
from tokenwire.coordinator.api.openai.message import joined_message
from tokenwire.coordinator.parsing.message import MessageDelta, MessageParser
from tokenwire.coordinator.parsing.settings import ModelFacts, ParserSettings
from tokenwire.coordinator.text.tokenizer import ModelTokenizer

pytestmark = [pytest.mark.engine, pytest.mark.npm, pytest.mark.filterwarnings("ignore")]

PARSERS = [
    ("qwen3", None),
    ("qwen3", "hermes"),
    ("qwen3", "qwen3_coder"),
    ("deepseek_r1", "hermes"),
    ("glm45", "glm45"),
    ("minimax_m2", None),
    ("nemotron_v3", None),
    ("step3", None),
    ("ernie45", None),
    ("mimo", None),
]
BEGUN = "<|im_start|>assistant\n<think>\nSo.\n</think>\n\nIt"
REST = " is four."


@cache
def tokenizer() -> ModelTokenizer:
    """Return a tokenizer with the special tokens that parsers need."""
    return ModelTokenizer.from_files(npm_tokenizer_files("qwen3"))


def read(parser: MessageParser, stream: bool, rest: str = REST) -> tuple[str, str, list[tuple[str, Any]]]:
    """Return content, reasoning and calls of the continuation, token by token or at once."""
    ids = tokenizer().encode(rest, add_special_tokens=False)
    if not stream:
        message = parser.full(rest, ids, "stop")
        calls = [(call.name, json.loads(call.arguments)) for call in message.tool_calls]
        return message.content or "", message.reasoning or "", calls
    texts = [tokenizer().decode([token_id]) for token_id in ids]
    deltas = [parser.delta(text, [ids[i]], i == len(ids) - 1) or MessageDelta() for i, text in enumerate(texts)]
    read = joined_message(deltas)
    functions = [call["function"] for call in read["tool_calls"]]
    return read["content"], read["reasoning"], [(each["name"], json.loads(each["arguments"])) for each in functions]


def body_of(tools: str | None) -> dict[str, Any]:
    """Return a request that continues a message."""
    body: dict[str, Any] = {
        "model": "m",
        "messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "It", "reasoning": "So."}],
        "continue_final_message": True,
        "add_generation_prompt": False,
    }
    if tools is not None:
        schema = {"type": "object", "properties": {"city": {"type": "string"}}}
        body["tools"] = [{"type": "function", "function": {"name": name, "parameters": schema}} for name in "fg"]
    return body


@pytest.mark.parametrize("stream", [False, True], ids=["full", "streamed"])
@pytest.mark.parametrize(("reasoning", "tools"), PARSERS)
def test_continued_content_is_not_reasoning(reasoning: str, tools: str | None, stream: bool) -> None:
    """The message's reasoning is over, for the parser and for the engine's grammar."""
    plan = loaded.plan_of(loaded.parsers(tools, reasoning, "qwen3"), body_of(tools))
    assert plan is not None
    prompt = tokenizer().encode(BEGUN, add_special_tokens=False)

    assert read(plan.parser(prompt), stream) == (REST, "", [])
    assert plan.reasoning_ended(prompt) is True
    assert plan.parser(prompt).reasoning_tokens(tokenizer().encode(REST)) == 0


CALLED = [("f", {"city": 'A "B"\n'}), ("g", {}), ("f", {"city": "C"})]
HERMES = [json.dumps({"name": name, "arguments": arguments}) for name, arguments in CALLED]
XML = [
    f"<function={name}>\n" + "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in given.items())
    for name, given in CALLED
]
CALLS = {
    "hermes": "\n".join(f"<tool_call>\n{call}\n</tool_call>" for call in HERMES),
    "qwen3_coder": "\n".join(f"<tool_call>\n{call}</function>\n</tool_call>" for call in XML),
    "granite": f"<tool_call>[{', '.join(HERMES)}]",
}


@pytest.mark.parametrize("stream", [False, True], ids=["full", "streamed"])
@pytest.mark.parametrize("tools", CALLS)
def test_calls_after_a_continued_message_are_complete(tools: str, stream: bool) -> None:
    """Each once, with its name and its arguments."""
    plan = loaded.plan_of(loaded.parsers(tools, "qwen3", "qwen3"), body_of(tools))
    assert plan is not None
    prompt = tokenizer().encode(BEGUN, add_special_tokens=False)

    content, reasoning, calls = read(plan.parser(prompt), stream, REST + "\n" + CALLS[tools])

    assert (content.strip(), reasoning, calls) == (REST.strip(), "", CALLED)


@pytest.mark.parametrize(
    "message",
    [
        {"role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
        {"role": "user", "content": "Hi", "name": None},
        {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": {"city": "x"}}}]},
    ],
    ids=["input_text", "null name", "arguments"],
)
@pytest.mark.parametrize("tools", CALLS)
def test_messages_are_left_to_the_template(tools: str, message: dict[str, Any]) -> None:
    """What it takes, the parsers' own request does not reject."""
    body = body_of(tools)
    body["messages"].insert(1, message)

    plan = loaded.plan_of(loaded.parsers(tools, "qwen3", "qwen3"), body)

    assert plan is not None


def test_a_plan_keeps_no_pictures() -> None:
    """It lives until the reply ends, and counts calls only."""
    body = body_of("qwen3")
    picture = {"type": "image_url", "image_url": {"url": "data:,"}}
    body["messages"].append({"role": "user", "content": [picture]})
    references = sys.getrefcount(picture)

    plan = loaded.plan_of(loaded.parsers("hermes", "qwen3", "qwen3"), body)
    del body

    assert plan is not None
    assert sys.getrefcount(picture) == references - 1


@pytest.mark.parametrize("stream", [False, True], ids=["full", "streamed"])
def test_calls_of_earlier_messages_are_counted(stream: bool) -> None:
    """Kimi's ids number the calls of a conversation."""
    settings = ParserSettings("granite", None, enable_auto_tool_choice=True)
    files, theirs = npm_tokenizer_files("qwen3"), loaded.parsers("hermes", "qwen3", "qwen3").tokenizer
    parsers = loaded.vllm_parsers.VllmParsers(settings, ModelFacts(model_type="kimi_k2"), files, tokenizer=theirs)
    earlier = {"function": {"name": "f", "arguments": {}}}
    history = [{"role": "user", "content": "Hi"}, {"role": "assistant", "tool_calls": [earlier, earlier]}]
    body = {"model": "m", "messages": history, "tools": body_of("granite")["tools"], "tool_choice": "required"}
    plan = loaded.plan_of(parsers, body)
    assert plan is not None
    text, parser = '[{"name": "f", "parameters": {}}, {"name": "g", "parameters": {}}]', plan.parser([])

    if stream:
        delta = parser.delta(text, tokenizer().encode(text), True)
        ids = [call.id for call in delta.tool_calls if call.id] if delta else []
    else:
        ids = [call.id for call in parser.full(text, tokenizer().encode(text), "stop").tool_calls]

    assert ids == ["functions.f:2", "functions.g:3"]
