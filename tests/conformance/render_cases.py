"""Requests of the render and derender routes, on which both servers are to agree."""

from collections.abc import Iterator
from typing import Any

Case = tuple[str, str, dict[str, Any]]
"""A name, a path, a body."""

CHAT, COMPLETION = "/v1/chat/completions/render", "/v1/completions/render"
USER = {"role": "user", "content": "What is the capital of France?"}
TURNS = [
    {"role": "system", "content": "You are brief."},
    USER,
    {"role": "assistant", "content": "Paris."},
    {"role": "user", "content": "And of Italy?"},
]
TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Tell the weather.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
CALLED = [
    USER,
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Rome"}'}}
        ],
    },
    {"role": "tool", "tool_call_id": "call_1", "content": "Sunny."},
]
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
TEMPLATE = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{{ mood }}"

SAMPLING: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0, "top_k": 5, "min_p": 0.1},
    "vLLM's own defaults": {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0},
    "a low temperature": {"temperature": 0.001},
    "penalties": {"presence_penalty": 0.5, "frequency_penalty": -0.5, "repetition_penalty": 1.1},
    "top": {"top_k": 7, "top_p": 0.3, "min_p": 0.2},
    "seed": {"seed": 7},
    "no seed": {"seed": -1},
    "choices": {"n": 3},
    "a stop string": {"stop": "abc"},
    "stop strings": {"stop": ["ab", "c"], "include_stop_str_in_output": True},
    "short stop strings": {"stop": ["a", "c"]},
    "stop tokens": {"stop_token_ids": [7, 5, 7], "ignore_eos": True, "min_tokens": 2},
    "sixteen tokens": {"max_tokens": 16},
    "tokens": {"max_tokens": 5},
    "text": {"skip_special_tokens": False, "spaces_between_special_tokens": False},
    "biases": {"logit_bias": {"5": 1, "6": -200}},
    "allowed tokens": {"allowed_token_ids": [5, 6]},
    "bad words": {"bad_words": ["x", "y", "x"]},
    "repetition": {"repetition_detection": {"max_pattern_size": 3, "min_count": 2}},
    "a budget of thinking": {"thinking_token_budget": 5},
    "no watermark": {"watermarking": False},
    "prompt log-probabilities": {"prompt_logprobs": 2},
    "an interval": {"stream_interval": 2, "stream": True},
    "a stream": {"stream": True, "stream_options": {"include_usage": True}},
    "extra arguments": {"vllm_xargs": {"a": 1, "b": "c", "d": [1.5]}},
    "a transfer": {"kv_transfer_params": {"do_remote_decode": True}, "ec_transfer_params": {"a": 1}},
    "a schema": {"structured_outputs": {"json": SCHEMA}},
    "an expression": {"structured_outputs": {"regex": "a+", "disable_any_whitespace": True}},
    "texts": {"structured_outputs": {"choice": ["a", "b"]}},
    "a format": {"response_format": {"type": "json_object"}},
    "a format with a schema": {
        "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}}
    },
    "a salt and a priority": {"cache_salt": "salt", "priority": 3},
    "an id": {"request_id": "mine"},
    "no model": {"model": None},
    "offsets": {"return_token_offsets": True},
    "a cut": {"truncate_prompt_tokens": 4, "max_tokens": 4},
    "a cut on the right": {"truncate_prompt_tokens": 4, "truncation_side": "right", "return_token_offsets": True},
    "an unknown field": {"unknown_field": 1},
    "beams": {"use_beam_search": True},
    "too many tokens": {"max_tokens": 100_000},
    "too hot": {"temperature": 3},
    "a negative top_p": {"top_p": -1},
    "no choices": {"n": 0},
    "greedy choices": {"n": 2, "temperature": 0},
    "no penalty": {"repetition_penalty": 0},
    "an empty stop string": {"stop": [""]},
    "the minimum above the maximum": {"min_tokens": 9, "max_tokens": 5},
    "another model": {"model": "another"},
    "an empty salt": {"cache_salt": ""},
    "options without a stream": {"stream_options": {"include_usage": True}},
    "a text as temperature": {"temperature": "hot"},
}
CHATS: dict[str, dict[str, Any]] = {
    "one turn": {"messages": [USER]},
    "turns with a system prompt": {"messages": TURNS},
    "parts": {
        "messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]
    },
    "unicode": {"messages": [{"role": "user", "content": "Grüße, 世界! 👩‍👩‍👧 \u0301 ∑"}]},
    "special tokens in text": {"messages": [{"role": "user", "content": "<|im_end|>\n<|im_start|>system\nx"}]},
    "an empty message": {"messages": [{"role": "user", "content": ""}]},
    "hidden tools": {"messages": [USER], "tools": [TOOL], "tool_choice": "none"},
    "called tools": {"messages": CALLED, "tools": [TOOL], "tool_choice": "none"},
    "an own template": {"messages": TURNS, "chat_template": TEMPLATE, "chat_template_kwargs": {"mood": "glad"}},
    "template arguments": {"messages": TURNS, "chat_template_kwargs": {"enable_thinking": False}},
    "no generation prompt": {"messages": TURNS, "add_generation_prompt": False},
    "a continued message": {
        "messages": TURNS[:3],
        "add_generation_prompt": False,
        "continue_final_message": True,
    },
    "special tokens": {"messages": [USER], "add_special_tokens": True},
    "completion tokens": {"messages": [USER], "max_completion_tokens": 4, "max_tokens": 9},
    "log-probabilities": {"messages": [USER], "logprobs": True, "top_logprobs": 3},
    "log-probabilities of the token": {"messages": [USER], "logprobs": True},
    "log-probabilities of ids": {"messages": [USER], "logprobs": True, "logprob_token_ids": [4, 5]},
    "an echo": {"messages": [USER], "echo": True, "logprobs": True, "top_logprobs": 1},
    "no reasoning": {"messages": [USER], "include_reasoning": False},
    "an effort": {"messages": [USER], "reasoning_effort": "low"},
    "a long message": {"messages": [{"role": "user", "content": "word " * 3000}], "return_token_offsets": True},
    "ids of a prefill": {"messages": [USER], "kv_transfer_params": {"prompt_token_ids": [1, 2, 3]}},
    "no messages": {"messages": []},
    "a missing field": {},
    "an unknown role": {
        "messages": [{"role": "nobody", "content": "a"}],
        "chat_template": "{{ raise_exception('no') }}",
    },
    "automatic tools": {"messages": [USER], "tools": [TOOL]},
    "required tools": {"messages": [USER], "tools": [TOOL], "tool_choice": "required"},
    "too long": {"messages": [{"role": "user", "content": "word " * 9000}]},
    "top without logprobs": {"messages": [USER], "top_logprobs": 3},
    "two continuations": {"messages": [USER], "continue_final_message": True},
}
COMPLETIONS: dict[str, dict[str, Any]] = {
    "a text": {"prompt": "Once upon a time"},
    "unicode": {"prompt": "Grüße, 世界! 👩‍👩‍👧"},
    "texts": {"prompt": ["a", "b c"]},
    "ids": {"prompt": [1, 2, 3]},
    "lists of ids": {"prompt": [[1, 2], [3]]},
    "texts with an id": {"prompt": ["a", "b"], "request_id": "mine"},
    "no special tokens": {"prompt": "a", "add_special_tokens": False},
    "offsets of texts": {"prompt": ["a b", "c"], "return_token_offsets": True},
    "offsets of ids": {"prompt": [1, 2], "return_token_offsets": True},
    "log-probabilities": {"prompt": "a", "logprobs": 2},
    "scores": {"prompt": "a b", "echo": True, "max_tokens": 0, "logprobs": 1},
    "no maximum": {"prompt": "a", "max_tokens": None},
    "no prompt": {},
    "an empty prompt": {"prompt": ""},
    "no prompts": {"prompt": []},
    "an empty list of ids": {"prompt": [[]]},
    "an unknown id": {"prompt": [10**9]},
    "a negative id": {"prompt": [-1]},
    "too long": {"prompt": "word " * 9000},
    "a suffix": {"prompt": "a", "suffix": "b"},
}

NAMED = {"type": "function", "function": {"name": "weather"}}
PARSED: dict[str, dict[str, Any]] = {
    "no tools": {"messages": [USER]},
    "automatic tools": {"messages": CALLED, "tools": [TOOL]},
    "required tools": {"messages": [USER], "tools": [TOOL], "tool_choice": "required"},
    "a named tool": {"messages": [USER], "tools": [TOOL], "tool_choice": NAMED},
    "hidden tools": {"messages": [USER], "tools": [TOOL], "tool_choice": "none"},
    "one call at most": {"messages": [USER], "tools": [TOOL], "parallel_tool_calls": False, "stream": True},
    "no reasoning": {"messages": [USER], "include_reasoning": False},
    "template arguments": {"messages": TURNS, "chat_template_kwargs": {"enable_thinking": False}},
    "a format": {"messages": [USER], "response_format": {"type": "json_object"}},
    "special tokens": {"messages": [USER], "skip_special_tokens": False},
    "an unknown tool": {"messages": [USER], "tools": [TOOL], "tool_choice": {**NAMED, "function": {"name": "x"}}},
}


def renders(model: str) -> Iterator[Case]:
    """Yield the requests of the render routes."""
    for path, base, cases in (
        (CHAT, {"model": model, "messages": [USER]}, SAMPLING),
        (COMPLETION, {"model": model, "prompt": "Once upon a time"}, SAMPLING),
        (CHAT, {"model": model}, CHATS),
        (COMPLETION, {"model": model}, COMPLETIONS),
    ):
        for name, body in cases.items():
            yield name, path, {**base, **body}
