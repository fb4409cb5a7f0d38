"""Real templates render conversations that start in the middle, which clients use to find text between turns.

It is of the templates and of no single module: each real one must do this for the token history to be exact.
"""

from typing import Any

import pytest

from tests.coordinator.text.template.real_templates import real_templates
from tokenwire.coordinator.text.template.chat_template import ChatTemplate
from tokenwire.coordinator.text.template.template_options import TemplateOptions

pytestmark = pytest.mark.npm

MODELS = ("Qwen-Qwen3-0.6B", "meta-llama-Llama-3.1-8B-Instruct", "GLM-4.6", "deepseek-ai-DeepSeek-V3.1")
EXPECTED = {"role": "assistant", "reasoning_content": "", "content": "x"}
CALL = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
CALLED = {"role": "assistant", "reasoning_content": "", "tool_calls": [CALL]}
RESULT = {"role": "tool", "tool_call_id": "call_1", "content": "5"}
NEXT = {"role": "user", "content": "go on"}


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(
    "messages",
    [[EXPECTED], [EXPECTED, NEXT], [CALLED], [CALLED, RESULT], [CALLED, RESULT, NEXT], [RESULT]],
    ids=["reply", "reply-next", "called", "called-result", "called-result-next", "result"],
)
async def test_a_conversation_may_begin_anywhere(model: str, messages: list[dict[str, Any]]) -> None:
    """With the assistant or a tool, without content, with empty reasoning and arguments as text."""
    template = ChatTemplate(real_templates()[model], {"bos_token": "<s>", "eos_token": "</s>"})

    text = await template.render_messages_async(messages, TemplateOptions(add_generation_prompt=messages[-1] is NEXT))

    shown = {"x": EXPECTED, "5": RESULT, "go on": NEXT}
    assert all(part in text for part, message in shown.items() if message in messages)
