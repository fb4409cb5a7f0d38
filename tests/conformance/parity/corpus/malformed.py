"""What is no request at all: broken JSON, other JSON, other media types, and a wrong type for every field."""

import json
from typing import Any

from tests.conformance.parity.corpus.prompts_used import FRANCE, SUM
from tests.conformance.parity.request import CHAT, MODEL, TEXT, Request, raw

_CHAT = {"model": MODEL, "messages": [{"role": "user", "content": SUM}], "max_tokens": 3}
_TEXT = {"model": MODEL, "prompt": FRANCE, "max_tokens": 3}
_BODIES: dict[str, bytes] = {
    "nothing": b"",
    "cut off": b'{"messages": [',
    "no JSON": b"hello",
    "a comma too many": b'{"model": "x",}',
    "not UTF-8": b'{"model": "\xff\xfe"}',
    "a list": b"[]",
    "a string": b'"hello"',
    "a number": b"5",
    "null": b"null",
    "an empty object": b"{}",
}
# One value of a wrong type for every field that no other module gives one.
_CHAT_TYPES: dict[str, Any] = {
    "frequency_penalty": "x",
    "presence_penalty": [],
    "repetition_penalty": "x",
    "logit_bias": [1],
    "top_p": {},
    "top_k": 1.5,
    "min_p": "x",
    "n": "many",
    "seed": 1.5,
    "stop": 5,
    "stop_token_ids": "x",
    "max_completion_tokens": "x",
    "include_stop_str_in_output": "perhaps",
    "ignore_eos": 7,
    "min_tokens": None,
    "skip_special_tokens": None,
    "spaces_between_special_tokens": "x",
    "truncate_prompt_tokens": "x",
    "truncation_side": 1,
    "logprob_token_ids": [1.5],
    "allowed_token_ids": "x",
    "bad_words": None,
    "use_beam_search": "perhaps",
    "watermarking": "perhaps",
    "length_penalty": "x",
    "echo": "perhaps",
    "add_generation_prompt": None,
    "continue_final_message": "perhaps",
    "add_special_tokens": None,
    "chat_template": 5,
    "chat_template_kwargs": [],
    "mm_processor_kwargs": [],
    "parallel_tool_calls": "perhaps",
    "return_tokens_as_token_ids": "perhaps",
    "return_token_ids": "perhaps",
    "return_prompt_text": "perhaps",
    "routed_experts_prompt_start": "x",
    "repetition_detection": 5,
    "stream_interval": 1.5,
}
_TEXT_TYPES: dict[str, Any] = {
    **{
        name: value
        for name, value in _CHAT_TYPES.items()
        if name
        not in (
            "max_completion_tokens",
            "add_generation_prompt",
            "continue_final_message",
            "chat_template",
            "chat_template_kwargs",
            "mm_processor_kwargs",
            "parallel_tool_calls",
            "return_prompt_text",
        )
    },
    "max_tokens": "x",
    "suffix": 5,
    "prompt_embeds": 5,
    "temperature": "x",
}


def _malformed() -> dict[str, Request]:
    found = {name: raw(CHAT, body) for name, body in _BODIES.items()}
    found.update({f"text, {name}": raw(TEXT, body) for name, body in _BODIES.items()})
    for field, value in _CHAT_TYPES.items():
        found[f"wrong type: {field}"] = raw(CHAT, {**_CHAT, field: value})
    for field, value in _TEXT_TYPES.items():
        found[f"text, wrong type: {field}"] = raw(TEXT, {**_TEXT, field: value})
    return found


REQUESTS = {
    **_malformed(),
    "several wrong types": raw(CHAT, {**_CHAT, "n": "x", "temperature": "hot", "stop": 5}),
    "another media type": raw(CHAT, json.dumps(_CHAT).encode(), {"content-type": "text/plain"}),
    "a form": raw(TEXT, b"prompt=x", {"content-type": "application/x-www-form-urlencoded"}),
}
