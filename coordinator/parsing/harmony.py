"""Renders the prompts of gpt-oss, which has no chat template, with vLLM's code for its format, Harmony."""

import json
from collections.abc import Mapping
from typing import Any

from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.entrypoints.openai.parser import harmony_utils

from tokenwire.coordinator.parsing.folders import harmony_vocabulary
from tokenwire.coordinator.parsing.message import ParserUnusable
from tokenwire.errors import InvalidRequest


def load_harmony(files: Mapping[str, bytes]) -> None:
    """Load its vocabulary from a tokenizer's files. Raises ParserUnusable."""
    try:
        with harmony_vocabulary(files):
            harmony_utils.get_encoding()
    except Exception as error:  # the library's errors have no common base class
        raise ParserUnusable(f"gpt-oss's vocabulary cannot be loaded: {error}") from error


def harmony_prompt(request: ChatCompletionRequest) -> list[int]:
    """Return the ids of a request's prompt. Raises InvalidRequest."""
    if request.reasoning_effort == "none":
        raise InvalidRequest("Harmony does not support reasoning_effort='none'", param="reasoning_effort")
    instructions, messages = harmony_utils.extract_instructions_from_messages(list(request.messages))
    preamble = harmony_utils.build_harmony_preamble(
        instructions=instructions,
        tools=request.tools,
        reasoning_effort=request.reasoning_effort,
        with_custom_tools=request.tools is not None,
    )
    conversation = harmony_utils.parse_chat_inputs_to_harmony_messages(messages)
    return list(harmony_utils.render_for_completion([*preamble, *conversation]))


def as_vllm_takes(message: Any) -> Any:
    """Return a message as vLLM's request takes it, where chat templates take more."""
    if not isinstance(message, dict):
        return message
    taken = {name: value for name, value in message.items() if value is not None or name not in ("name", "tool_calls")}
    content, calls = taken.get("content"), taken.get("tool_calls")
    if isinstance(content, list):
        taken["content"] = [_text_part(part) for part in content]
    if isinstance(calls, list):
        taken["tool_calls"] = [_call(call) for call in calls]
    return taken


def _text_part(part: Any) -> Any:
    return {**part, "type": "text"} if isinstance(part, dict) and part.get("type") == "input_text" else part


def _call(call: Any) -> Any:
    if not isinstance(call, dict) or not isinstance(call.get("function"), dict):
        return call
    arguments = call["function"].get("arguments")
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments or {}, ensure_ascii=False)
    return {"id": "", "type": "function", **call, "function": {**call["function"], "arguments": arguments}}
