"""Prompts of gpt-oss, with vLLM's own code and the real vocabulary."""

from typing import Any

import pytest

from tests.coordinator.parsing import loaded
from tests.coordinator.parsing.outputs import chat_body
from tokenwire.errors import InvalidRequest

pytestmark = [pytest.mark.engine, pytest.mark.npm, pytest.mark.filterwarnings("ignore")]


def prompt_with_call(user: Any, call: dict[str, Any], **fields: Any) -> list[int]:
    """Return the prompt of a conversation with a call, whose first message has more fields."""
    history = [
        {"role": "user", "content": user, **fields},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call.get("id", ""), "content": "done"},
    ]
    plan = loaded.plan_of(loaded.parsers("openai", "openai_gptoss", "gptoss"), chat_body(messages=history))
    assert plan is not None
    assert plan.prompt_token_ids is not None
    return list(plan.prompt_token_ids)


def test_messages_are_taken_as_with_templates() -> None:
    """Arguments as an object, calls without an id or a type, a name that is null, and parts of the Responses API."""
    function = {"name": "write", "arguments": '{"path": "a", "mode": 3}'}
    usual = prompt_with_call([{"type": "text", "text": "Hi"}], {"id": "c", "type": "function", "function": function})

    as_object = {"function": {"name": "write", "arguments": {"path": "a", "mode": 3}}}

    assert prompt_with_call([{"type": "input_text", "text": "Hi"}], as_object, name=None) == usual
    assert prompt_with_call("Hi", {"id": "c", **as_object}, tool_calls=None) == usual


@pytest.mark.parametrize("call", ["write", {"id": "c", "type": "function"}])
def test_what_is_no_call_is_an_error_of_the_request(call: Any) -> None:
    """As vLLM checks it, since no template does."""
    messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "tool_calls": [call]}]

    with pytest.raises(InvalidRequest):
        loaded.plan_of(loaded.parsers("openai", "openai_gptoss", "gptoss"), chat_body(messages=messages))
