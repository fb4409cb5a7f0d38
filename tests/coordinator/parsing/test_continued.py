"""Replies that go on with a message: what comes behind its reasoning is its answer, streamed and whole."""

from functools import cache
from typing import Any

import pytest

from coordinator.parsing.message import MessageDelta, MessageParser, joined
from coordinator.parsing.settings import ModelFacts, ParserSettings
from coordinator.text.tokenizer import Tokenizer
from tests.tokenizers import npm_tokenizer_files

pytest.importorskip("vllm")

from coordinator.parsing.vllm_parsers import VllmParsers  # behind the check for vLLM

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
def tokenizer() -> Tokenizer:
    """Return a tokenizer with the marks that parsers look for."""
    return Tokenizer.from_files(npm_tokenizer_files("qwen3"))


@cache
def parsers(reasoning: str, tools: str | None) -> VllmParsers:
    """Load parsers."""
    settings = ParserSettings(tools, reasoning, enable_auto_tool_choice=tools is not None)
    return VllmParsers(settings, ModelFacts(), npm_tokenizer_files("qwen3"))


def read(parser: MessageParser, stream: bool) -> tuple[str, str]:
    """Return content and reasoning of what follows, token by token or whole."""
    ids = tokenizer().encode(REST, add_special_tokens=False)
    if not stream:
        message = parser.whole(REST, ids, "stop")
        return message.content or "", message.reasoning or ""
    texts = [tokenizer().decode([token_id]) for token_id in ids]
    deltas = [parser.delta(text, [ids[i]], i == len(ids) - 1) or MessageDelta() for i, text in enumerate(texts)]
    message_read = joined(deltas)
    return message_read["content"], message_read["reasoning"]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(("reasoning", "tools"), PARSERS)
def test_an_answer_that_goes_on_is_no_reasoning(reasoning: str, tools: str | None, stream: bool) -> None:
    """The parser sees that the message has thought; the engine's grammar does not wait for it to think again."""
    body: dict[str, Any] = {
        "model": "m",
        "messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "It", "reasoning": "So."}],
        "continue_final_message": True,
        "add_generation_prompt": False,
    }
    if tools is not None:
        function = {"name": "f", "parameters": {"type": "object", "properties": {}}}
        body["tools"] = [{"type": "function", "function": function}]
    plan = parsers(reasoning, tools).plan(body)
    assert plan is not None
    begun = tokenizer().encode(BEGUN, add_special_tokens=False)

    assert read(plan.parser(begun), stream) == (REST, "")
    assert plan.reasoning_ended(begun) is True
    assert plan.parser(begun).reasoning_tokens(tokenizer().encode(REST)) == 0
