"""The fields of all request models, each with values that cost most; some are cheap and make others expensive.

One file, since models share most fields.
"""

from collections.abc import Mapping, Sequence

from tests.adversary import pictures, schemas
from tests.adversary.values import (
    CONTEXT,
    MIB,
    OPEN_OBJECTS,
    SHAPES,
    VOCABULARY,
    Value,
    entries,
    id_list,
    id_lists,
    inside,
    long_text,
    many,
    small,
    texts,
    value_of,
)
from tokenwire.coordinator.generation.limits import MAX_IDS

Table = Mapping[str, Sequence[Value]]

LONG_REPLY = 4_000
"""Tokens, of 20 seconds of the simulated engine under attack."""

N = small(2, 16, 64, 200, 500, 2_000, 16_384)
_LABEL = [value_of("512 characters", "x" * 512), value_of("1 MB", "x" * MIB)]
_TEXTS = [long_text(size) for size in (4_096, 90_000, MIB, 8 * MIB, 30 * MIB)] + [
    long_text(30 * MIB, "a"),
    long_text(20 * MIB, "\U0001f9d0"),
    long_text(30 * MIB, " "),
]
ID_LIST = [id_list(count) for count in (1_000, 3_000, 10_000, 24_000, CONTEXT - 64, 500_000, 4_000_000)]
"""With 24,000 a prompt has as many log-probabilities as a request may: 20 of each token."""
_ID_LISTS = [
    *(id_lists(lists, 3) for lists in (16, 200, 2_000, 16_384, 65_536)),
    *(id_lists(lists, length) for lists, length in ((10, 9_900), (64, 2_000), (200, 10_000), (4, CONTEXT - 64))),
    many(16_384, "empty prompts", "[]"),
]
_MANY_TEXTS = [texts(count, size) for count, size in ((64, 4_096), (2_000, 64), (16_384, 8), (65_536, 1), (6, 5 * MIB))]
_SMALL_EXTRA = {"a": ["x" * 100] * 100}

SAMPLING: Table = {
    "frequency_penalty": small(2.0),
    "presence_penalty": small(-2.0),
    "repetition_penalty": small(1e-30),
    "temperature": small(2.0),
    "top_p": small(1e-9),
    "top_k": small(1, VOCABULARY),
    "min_p": small(1.0),
    "n": N,
    "seed": small(2**62),
    "stop": [many(4, "stops of 4,096", '"' + "ab" * 2_048 + '"'), many(4, "stops of 1", '"~"')],
    "stop_token_ids": [id_list(1_024, VOCABULARY - 5)],
    "include_stop_str_in_output": small(True),
    "ignore_eos": small(True),
    "min_tokens": small(2),
    "skip_special_tokens": small(False),
    "spaces_between_special_tokens": small(False),
    "logit_bias": [Value("10,000 biases", lambda: "{" + ",".join([f'"{i}":1.5' for i in range(10_000)]) + "}")],
    "allowed_token_ids": [id_list(VOCABULARY - 5, VOCABULARY - 5), id_list(MAX_IDS, VOCABULARY - 5)],
    "bad_words": [many(128, "words of 1,024", '"' + "word" * 256 + '"')],
    "prompt_logprobs": small(0, 3, 20, -1),
    "logprob_token_ids": [id_list(128, VOCABULARY - 5)],
    "structured_outputs": schemas.STRUCTURED_OUTPUTS,
    "repetition_detection": small({"max_pattern_size": 2**32 - 1, "min_pattern_size": 1, "min_count": 2**31}),
    "thinking_token_budget": small(2**31 - 1),
    "watermarking": small(True),
    "routed_experts_prompt_start": small(2**32 - 1),
}
_ENGINE: Table = {
    "max_tokens": small(1, 64, 1_000, LONG_REPLY),
    "logprobs": small(0, 3, 20, -1),
    "skip_reading_prefix_cache": small(True),
    "prompt_logprob_start": small(0),
    "trace_decode_token_ids": [id_list(MAX_IDS), id_list(CONTEXT)],
    "extra_args": [*OPEN_OBJECTS, value_of("10 KB", _SMALL_EXTRA)],
}
ENGINE_SAMPLING: Table = {**SAMPLING, **_ENGINE}
"""Of vLLM's SamplingParams as JSON."""

_WEIGHT_LIMITS: Table = {"min_weight_version": _LABEL, "max_weight_lag": small(0, 2**31 - 1)}
_REQUEST: Table = {
    **SAMPLING,
    "model": [value_of("1 MB", "x" * MIB)],
    "truncate_prompt_tokens": small(-1, 1, 10, CONTEXT),
    "truncation_side": small("left", "right"),
    "response_format": schemas.RESPONSE_FORMATS,
    "kv_transfer_params": OPEN_OBJECTS,
    "ec_transfer_params": OPEN_OBJECTS,
    "vllm_xargs": [
        Value("10 x 50,000 numbers", lambda: entries(10, "[" + "1," * 49_999 + "1]")),
        value_of("10 KB", _SMALL_EXTRA),
        value_of("8 MB", {"a": "x" * (8 * MIB)}),
    ],
    "echo": small(True),
    "stream": small(True),
    "stream_options": small({"include_usage": True, "continuous_usage_stats": True}),
    "stream_interval": small(2**62),
    "return_token_ids": small(True),
    "return_tokens_as_token_ids": small(True),
    "priority": small(2**62),
    "cache_salt": [value_of("128 characters", "x" * 128)],
    "session_id": _LABEL,
    "prompt_cache_key": _LABEL,
    **_WEIGHT_LIMITS,
    "request_id": _LABEL,
    "user": [long_text(8 * MIB)],
    "use_beam_search": small(True),
    "length_penalty": small(1e300),
    "return_token_offsets": small(True),
    "mm_payload": small("none"),
    "return_mm_kwargs": small(True),
}
COMPLETION: Table = {
    **_REQUEST,
    "prompt": [*_TEXTS, *ID_LIST, *_ID_LISTS, *_MANY_TEXTS, *SHAPES],
    "max_tokens": _ENGINE["max_tokens"],
    "logprobs": _ENGINE["logprobs"],
    "add_special_tokens": small(False),
    "suffix": [long_text(8 * MIB)],
    "prompt_embeds": [long_text(8 * MIB), texts(60_000, 8)],
}
_HISTORY: Table = {
    "token_history": small("exact", "auto"),
    "required_prefix_token_ids": [id_list(count) for count in (3_000, 1_000_000)],
}
_TEMPLATE: Table = {
    "add_generation_prompt": small(False),
    "continue_final_message": small(True),
    "add_special_tokens": small(True),
    "chat_template": [
        value_of("loops", "{% for a in range(99999) %}{% for b in range(99999) %}x{% endfor %}{% endfor %}")
    ],
    "chat_template_kwargs": OPEN_OBJECTS,
    "tools": schemas.CHAT_TOOLS,
}
CHAT: Table = {
    **_REQUEST,
    **_HISTORY,
    **_TEMPLATE,
    "messages": [*schemas.CHATS, *pictures.CHATS],
    "max_tokens": _ENGINE["max_tokens"],
    "max_completion_tokens": _ENGINE["max_tokens"],
    "logprobs": small(True),
    "top_logprobs": small(3, 20, -1),
    "reasoning_effort": small("max"),
    "include_reasoning": small(False),
    "documents": [many(60_000, "documents", '{"a":"b"}'), many(6, "of 4 MB", '{"a":"' + "x" * (4 * MIB) + '"}')],
    "return_prompt_text": small(True),
    "tool_choice": [*small("required", "auto"), value_of("one", {"type": "function", "function": {"name": "f"}})],
    "parallel_tool_calls": small(False),
    "media_io_kwargs": [value_of("one", {"image": _SMALL_EXTRA})],
    "mm_processor_kwargs": OPEN_OBJECTS,
}
CHAT_TOKENS: Table = {**CHAT, "tokens": ID_LIST}
GENERATE: Table = {
    **_WEIGHT_LIMITS,
    **{f"sampling_params.{name}": values for name, values in ENGINE_SAMPLING.items()},
    **{name: _REQUEST[name] for name in ("model", "request_id", "return_token_ids", "stream", "stream_options")},
    **{name: _REQUEST[name] for name in ("cache_salt", "priority", "kv_transfer_params", "ec_transfer_params")},
    "token_ids": ID_LIST,
    "output_mode": small("text"),
    "reasoning_ended": small(True),
    "reasoning_parser_kwargs": [value_of("10 KB", {"chat_template_kwargs": _SMALL_EXTRA})]
    + [inside("chat_template_kwargs", value) for value in OPEN_OBJECTS],
    "token_offsets": [many(150_000, "pairs", "[0,1]")],
}
_SGLANG_NAMES = {
    **{"max_tokens": "max_new_tokens", "min_tokens": "min_new_tokens", "seed": "sampling_seed"},
    "include_stop_str_in_output": "no_stop_trim",
}
SGLANG: Table = {
    **_WEIGHT_LIMITS,
    **{f"sampling_params.{_SGLANG_NAMES.get(name, name)}": values for name, values in ENGINE_SAMPLING.items()},
    "sampling_params.regex": [value_of("32 KB", "(a|b)" * 6_500)],
    "sampling_params.json_schema": [value_of("5,000 properties", str(schemas.wide_schema(5_000)).replace("'", '"'))],
    "sampling_params.ebnf": [value_of("20,000 choices", "root ::= " + " | ".join(f'"a{i}"' for i in range(20_000)))],
    "sampling_params.structural_tag": [
        value_of("100 KB", '{"type": "structural_tag", "format": "' + "x" * 100_000 + '"}')
    ],
    "text": [*_TEXTS, *_MANY_TEXTS],
    "input_ids": [*ID_LIST, *_ID_LISTS],
    "rid": _LABEL,
    "return_logprob": small(True),
    "logprob_start_len": small(0),
    "top_logprobs_num": small(3, 20, 1_000),
    "stream": small(True),
    "priority": small(-(2**62)),
    "cache_salt": [value_of("512 characters", "x" * 512)],
}
TOKENIZE: Table = {
    **_HISTORY,
    **_TEMPLATE,
    **{name: _REQUEST[name] for name in ("model", "cache_salt", "session_id")},
    "prompt": _TEXTS,
    "messages": [*schemas.CHATS, *pictures.CHATS],
    **{name: CHAT[name] for name in ("media_io_kwargs", "mm_processor_kwargs")},
    "return_token_strs": small(True),
}
DETOKENIZE: Table = {"model": _REQUEST["model"], "tokens": [*ID_LIST, id_list(VOCABULARY - 5, VOCABULARY - 5)]}
_TRL: Table = {
    **_WEIGHT_LIMITS,
    **{name: ENGINE_SAMPLING[name] for name in ("n", "repetition_penalty", "temperature", "top_p", "top_k", "min_p")},
    **{name: ENGINE_SAMPLING[name] for name in ("max_tokens", "logprobs")},
    "structured_outputs_regex": [value_of("32 KB", "(a|b)" * 6_500)],
    "generation_kwargs": OPEN_OBJECTS,
    **{f"generation_kwargs.{name}": values for name, values in ENGINE_SAMPLING.items()},
}
TRL_GENERATE: Table = {**_TRL, "prompts": [*_ID_LISTS, *_MANY_TEXTS], "images": [many(250_000, "of none", "null")]}
TRL_CHAT: Table = {
    **_TRL,
    "messages": schemas.CONVERSATIONS,
    "chat_template_kwargs": OPEN_OBJECTS,
    "tools": schemas.CHAT_TOOLS,
}
TRL_LOGPROBS: Table = {
    "sequences": _ID_LISTS,
    "prompt_lengths": [many(10, "zeros", "0"), many(2_000, "zeros", "0"), many(1_000_000, "zeros", "0")],
    "top_logprobs": small(0, 3, 20, 1_000),
    "temperature": small(2.0),
    "response_format": small("binary"),
}
RESPONSES: Table = {
    "input": [*schemas.INPUTS, *pictures.INPUTS, *schemas.COMPACTIONS, *_TEXTS],
    "model": _REQUEST["model"],
    "instructions": [long_text(20 * MIB)],
    "tools": schemas.RESPONSES_TOOLS,
    "tool_choice": [*small("required"), value_of("one", {"type": "function", "name": "f"})],
    "parallel_tool_calls": small(False),
    "max_output_tokens": _ENGINE["max_tokens"],
    "max_tool_calls": small(2**62),
    "temperature": small(2.0),
    "top_p": small(1e-9),
    "top_logprobs": small(20),
    "text": schemas.TEXT_FORMATS,
    "reasoning": [
        value_of(
            "all", {"effort": "max", "summary": "x", "generate_summary": "x", "context": "auto", "mode": "standard"}
        )
    ],
    "include": [*small(["message.output_text.logprobs"]), many(250_000, "of one", '"reasoning.encrypted_content"')],
    "metadata": [value_of("16 of 512", {f"k{i}": "x" * 512 for i in range(16)}), OPEN_OBJECTS[1]],
    "truncation": small("auto"),
    "stream": small(True),
    "stream_options": OPEN_OBJECTS,
    "store": small(True),
    "background": small(True),
    "previous_response_id": _LABEL,
    "user": _LABEL,
    "safety_identifier": _LABEL,
    "prompt_cache_key": _LABEL,
    **{name: SAMPLING[name] for name in ("allowed_token_ids", "logit_bias", "bad_words", "stop", "structured_outputs")},
    **{name: _REQUEST[name] for name in ("vllm_xargs", "truncate_prompt_tokens")},
}
_COMPACTED = ("model", "instructions", "previous_response_id", "prompt_cache_key", "tools", "parallel_tool_calls")
COMPACTION: Table = {
    **{name: RESPONSES[name] for name in (*_COMPACTED, "reasoning", "text", "max_output_tokens")},
    "input": [*schemas.INPUTS, *pictures.INPUTS, *schemas.COMPACTIONS, *_TEXTS],
}
COUNT_TOKENS: Table = {
    "model": _REQUEST["model"],
    "messages": [*schemas.ANTHROPIC_CHATS, *pictures.ANTHROPIC_CHATS],
    "system": schemas.SYSTEMS,
    "tools": schemas.ANTHROPIC_TOOLS,
    "tool_choice": [
        *small({"type": "any"}),
        value_of("one", {"type": "tool", "name": "f", "disable_parallel_tool_use": True}),
    ],
    "thinking": small({"type": "enabled", "budget_tokens": 1}),
    "output_config": schemas.OUTPUT_CONFIGS,
    "chat_template_kwargs": OPEN_OBJECTS,
    "mcp_servers": [many(60_000, "servers", '{"type":"url","url":"https://x","name":"x"}')],
    "context_management": [
        value_of("clear thinking", {"edits": [{"type": "clear_thinking_20251015"}]}),
        Value("60,000 edits", lambda: '{"edits":[' + ",".join(['{"type":"clear_thinking_20251015"}'] * 60_000) + "]}"),
    ],
    "cache_control": SHAPES,
}
MESSAGES: Table = {
    **COUNT_TOKENS,
    "max_tokens": _ENGINE["max_tokens"],
    "temperature": small(1.0),
    "top_p": small(1e-9),
    "top_k": small(1),
    "stop_sequences": SAMPLING["stop"],
    "stream": small(True),
    "metadata": OPEN_OBJECTS,
    "service_tier": [long_text(MIB)],
    "inference_geo": [long_text(MIB)],
    **{name: SAMPLING[name] for name in ("allowed_token_ids", "logit_bias", "bad_words")},
    **{name: _REQUEST[name] for name in ("vllm_xargs", "truncate_prompt_tokens")},
}
ABORTS: Table = {"request_ids": [texts(16_384, 8), texts(250_000, 1), texts(6, 5 * MIB)]}
SGLANG_ABORT: Table = {
    "rid": [value_of("512 characters", "x" * 512), value_of("30 MB", "x" * (30 * MIB))],
    "abort_all": small(True),
}
