"""Values for the generator: valid and possibly invalid ones for every field of both routes."""

from random import Random
from typing import Any

from tests.conformance.parity.corpus.parsers import CALL, CALLING, THINKING, repeated
from tests.conformance.parity.corpus.prompts_used import COLORS, FACES, FRANCE, PARTY, SCRAPS, STORY, SUM, TURNS
from tests.conformance.parity.corpus.tools import NAMED, WEATHER

Fields = dict[str, Any]

_OPEN = [{"role": "user", "content": SUM}, {"role": "assistant", "content": "Well, the answer"}]
_SCHEMA = {
    "type": "object",
    "properties": {"city": {"enum": ["Paris", "Rome"]}},
    "required": ["city"],
    "additionalProperties": False,
}
_FORMAT = {"type": "json_schema", "json_schema": {"name": "city", "schema": _SCHEMA}}
_TEMPLATE = "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}[{{ extra | default('none') }}]"

MESSAGES: list[Any] = [
    [{"role": "user", "content": SUM}],
    [{"role": "user", "content": COLORS}],
    [{"role": "user", "content": STORY}],
    [{"role": "user", "content": PARTY}],
    [{"role": "user", "content": [{"type": "text", "text": "Name"}, {"type": "text", "text": "a"}]}],
    TURNS,
    _OPEN,
]
PROMPTS: list[Any] = [
    FRANCE,
    FACES,
    "x",
    "你好，世界。",
    [504, 3575, 282, 4649, 314],
    [FRANCE, "One two three"],
    [[504, 3575], [282, 4649, 314]],
]
# Fragments of requests that belong together; most of them are valid.
COMMON: list[Fields] = [
    {"stop": ["Blue"]},
    {"stop": "a"},
    {"stop": ["e", "th", ". "]},
    {"stop": ["lu", "ue"], "include_stop_str_in_output": True},
    {"stop": ["a"], "min_tokens": 3},
    {"stop_token_ids": [10062, 30]},
    {"stop_token_ids": [253], "include_stop_str_in_output": True},
    {"min_tokens": 4, "max_tokens": 9},
    {"ignore_eos": True},
    {"skip_special_tokens": False},
    {"skip_special_tokens": False, "spaces_between_special_tokens": False, "allowed_token_ids": [0, 1, 504, 3950]},
    {"allowed_token_ids": SCRAPS},
    {"allowed_token_ids": [33, 34, 35, 216]},
    {"logit_bias": {"33": 4.5, "504": -100}},
    {"bad_words": ["Red", "The"]},
    {"presence_penalty": 1.1},
    {"frequency_penalty": -0.7},
    {"repetition_penalty": 1.3},
    {"top_p": 0.8},
    {"top_k": 4},
    {"top_k": -1},
    {"min_p": 0.2},
    {"n": 1},
    {"truncate_prompt_tokens": 6},
    {"truncate_prompt_tokens": -1},
    {"truncate_prompt_tokens": 5, "truncation_side": "left"},
    {"truncate_prompt_tokens": 5, "truncation_side": "right"},
    {"truncation_side": "right"},
    {"prompt_logprobs": 1},
    {"prompt_logprobs": 0},
    {"return_tokens_as_token_ids": True},
    {"return_token_ids": True},
    {"return_token_ids": False},
    {"echo": True},
    {"response_format": {"type": "text"}},
    {"response_format": {"type": "json_object"}},
    {"response_format": _FORMAT, "max_tokens": 24},
    {"structured_outputs": {"choice": ["four", "five", "one two"]}},
    {"structured_outputs": {"regex": "[0-9]{3}"}},
    {"structured_outputs": {"json": _SCHEMA}, "max_tokens": 24},
    {"structured_outputs": {"grammar": 'root ::= "yes" | "no"'}},
    {"use_beam_search": True},
    {"length_penalty": 0.7},
    {"watermarking": True},
    {"thinking_token_budget": -1},
    {"repetition_detection": {"max_pattern_size": 2, "min_count": 2}},
    {"stream_interval": 3},
    {"add_special_tokens": False},
    {"add_special_tokens": True},
    {"priority": 0},
    {"cache_salt": "pepper"},
    {"session_id": "talk"},
    {"request_id": "my-own"},
    {"user": "ada"},
    {"routed_experts_prompt_start": 1},
    {"return_token_offsets": True},
    {"mm_payload": "none"},
    {"return_mm_kwargs": False},
    {"kv_transfer_params": {"a": 1}},
    {"ec_transfer_params": {"a": 1}},
    {"vllm_xargs": {"a": 1}},
    {"unknown_field": {"a": [1]}},
]
CHAT_ONLY: list[Fields] = [
    {"logprobs": True},
    {"logprobs": True, "top_logprobs": 2},
    {"logprobs": True, "top_logprobs": 5, "return_tokens_as_token_ids": True},
    {"logprobs": True, "logprob_token_ids": [33, 504]},
    {"max_completion_tokens": 5},
    {"add_generation_prompt": False},
    {"messages": _OPEN, "add_generation_prompt": False, "continue_final_message": True},
    {"messages": _OPEN, "add_generation_prompt": False, "echo": True},
    {"chat_template": _TEMPLATE},
    {"chat_template": _TEMPLATE, "chat_template_kwargs": {"extra": "more"}},
    {"documents": [{"title": "T", "text": "x"}]},
    {"tools": [WEATHER], "tool_choice": "none"},
    {"parallel_tool_calls": False},
    {"reasoning_effort": "high"},
    {"include_reasoning": False},
    {"return_prompt_text": True},
    {"media_io_kwargs": {}},
    {"mm_processor_kwargs": {}},
]
TEXT_ONLY: list[Fields] = [
    {"logprobs": 0},
    {"logprobs": 3},
    {"logprobs": 1, "return_tokens_as_token_ids": True},
    {"logprobs": 1, "logprob_token_ids": [33, 504]},
    {"echo": True, "logprobs": 1},
    {"echo": True, "max_tokens": 0},
    {"suffix": None},
    {"prompt_embeds": None},
]
# For servers with parsers: tools, and replies that hold calls or thoughts.
PARSED: list[Fields] = [
    {"tools": [WEATHER]},
    {"tools": [WEATHER], "tool_choice": "required", "include_reasoning": False, "max_tokens": 40},
    {"tools": [WEATHER], "tool_choice": NAMED, "include_reasoning": False, "max_tokens": 40},
    {"tools": [WEATHER], "structured_outputs": {"regex": CALL}, "include_reasoning": False, "max_tokens": 90},
    {"tools": [WEATHER], "structured_outputs": {"regex": CALL}, "include_reasoning": False, "max_tokens": 20},
    {"chat_template": repeated(CALLING), "stop": ["\n\n"], "tools": [WEATHER], "max_tokens": 60},
    {"chat_template": repeated(THINKING), "stop": ["\n\n"], "max_tokens": 30},
    {"chat_template": repeated(THINKING), "stop": ["\n\n"], "max_tokens": 30, "include_reasoning": False},
    {"chat_template": repeated(THINKING), "stop": ["\n\n"], "max_tokens": 12},
]
# Values that vLLM may reject; a field is also given a value of some other type.
INVALID_COMMON: list[Fields] = [
    {"model": "other"},
    {"temperature": 2.1},
    {"temperature": -0.1},
    {"top_p": 0},
    {"top_p": 1.2},
    {"top_k": -2},
    {"min_p": 1.1},
    {"n": 0},
    {"n": 2, "temperature": 0},
    {"presence_penalty": 2.1},
    {"frequency_penalty": -3},
    {"repetition_penalty": 0},
    {"seed": 2**63},
    {"stop": [""]},
    {"stop": ["a", "b", "c", "d", "e"]},
    {"stop_token_ids": [49152]},
    {"min_tokens": 17, "max_tokens": 4},
    {"min_tokens": -1},
    {"max_tokens": -1},
    {"max_tokens": 2049},
    {"logit_bias": {"x": 1}},
    {"logit_bias": {"49152": 1}},
    {"allowed_token_ids": []},
    {"allowed_token_ids": [-1]},
    {"bad_words": [""]},
    {"truncate_prompt_tokens": -2},
    {"truncate_prompt_tokens": 2049},
    {"truncation_side": "up"},
    {"prompt_logprobs": 21},
    {"prompt_logprobs": -2},
    {"prompt_logprobs": 1, "stream": True},
    {"logprob_token_ids": [1]},
    {"stream": False, "stream_options": {"include_usage": True}},
    {"stream_interval": 0},
    {"response_format": {"type": "xml"}},
    {"response_format": {"type": "json_schema"}},
    {"structured_outputs": {}},
    {"structured_outputs": {"regex": "["}},
    {"structured_outputs": {"choice": []}},
    {"structured_outputs": {"regex": "a", "choice": ["a"]}},
    {"thinking_token_budget": -3},
    {"thinking_token_budget": 4},
    {"repetition_detection": {"max_pattern_size": 1, "min_count": 1}},
    {"priority": 3},
    {"cache_salt": ""},
    {"cache_salt": "a@b"},
    {"routed_experts_prompt_start": -1},
    {"mm_payload": "x"},
    {"vllm_xargs": {"a": None}},
]
INVALID_CHAT: list[Fields] = [
    {"messages": []},
    {"messages": [{"content": "x"}]},
    {"messages": [{"role": "user", "content": [{"type": "smell"}]}]},
    {"messages": [{"role": "user", "content": "x " * 2500}]},
    {"top_logprobs": 2},
    {"logprobs": True, "top_logprobs": 21},
    {"logprobs": True, "top_logprobs": -3},
    {"max_completion_tokens": 0},
    {"max_completion_tokens": 2049},
    {"continue_final_message": True, "add_generation_prompt": True},
    {"chat_template": "{{ raise_exception('no') }}"},
    {"documents": [5]},
    {"tools": []},
    {"tools": [WEATHER]},
    {"tools": [WEATHER], "tool_choice": NAMED},
    {"tools": [WEATHER], "tool_choice": "required"},
    {"tool_choice": "auto"},
    {"reasoning_effort": "extreme"},
    {"media_io_kwargs": {"image": {"a": 1}}},
    {"mm_processor_kwargs": {"a": 1}},
]
INVALID_TEXT: list[Fields] = [
    {"prompt": ""},
    {"prompt": []},
    {"prompt": [49152]},
    {"prompt": [-1]},
    {"prompt": ["x", ""]},
    {"prompt": [504] * 2048},
    {"prompt": "x " * 2500},
    {"prompt": None},
    {"logprobs": 21},
    {"logprobs": -2},
    {"suffix": "!"},
    {"prompt_embeds": "AAAA"},
    {"echo": True, "max_tokens": 0, "logprobs": 1, "logprob_token_ids": [1]},
]
OTHER_TYPES: list[Any] = ["x", "", 5, -1, 0, 1.5, 10**30, True, False, None, [], [1], ["x"], {}, {"a": 1}]


def sampling(draw: Random) -> Fields:
    """Return random sampling parameters with reproducible results."""
    if draw.random() < 0.5:
        return {"temperature": 0}
    fields: Fields = {"temperature": draw.choice([0.3, 0.8, 1, 1.5, 2.0]), "seed": draw.randrange(2**32)}
    if draw.random() < 0.25:
        fields["n"] = draw.choice([2, 3])
    return fields
