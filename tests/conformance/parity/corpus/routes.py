"""The other routes of vLLM's own server: Responses, Messages, ids in and out, and the tokenizer's."""

from typing import Any

from tests.conformance.parity.corpus.prompts_used import COLORS, FRANCE, STORY, SUM, TURNS
from tests.conformance.parity.request import (
    DETOKENIZE,
    GENERATE,
    MESSAGES,
    MODEL,
    RESPONSES,
    TOKENIZE,
    Request,
    as_is,
    rejected,
)

_IDS = [504, 3575, 282, 4649, 314]


def _responses(given: Any, **options: Any) -> Request:
    return Request(
        RESPONSES,
        {"model": MODEL, "input": given, "temperature": 0, "max_output_tokens": 12, "store": False, **options},
    )


def _messages(content: Any, **options: Any) -> Request:
    messages = content if isinstance(content, list) else [{"role": "user", "content": content}]
    return Request(MESSAGES, {"model": MODEL, "messages": messages, "temperature": 0, "max_tokens": 12, **options})


def _generate(sampling: dict[str, Any], **options: Any) -> Request:
    sampling = {"temperature": 0, "max_tokens": 9, **sampling}
    return Request(GENERATE, {"model": MODEL, "token_ids": _IDS, "sampling_params": sampling, **options})


def _tokenize(**fields: Any) -> Request:
    return as_is(Request(TOKENIZE, {"model": MODEL, **fields}))


def _detokenize(**fields: Any) -> Request:
    return as_is(Request(DETOKENIZE, {"model": MODEL, **fields}))


_CHAT = [{"role": "user", "content": SUM}]

REQUESTS = {
    "responses": _responses(SUM),
    "responses, to the end": _responses(SUM, max_output_tokens=40),
    "responses, instructions": _responses(COLORS, instructions="Be terse."),
    "responses, items": _responses(TURNS),
    "responses, sampled": _responses(STORY, temperature=0.8, top_p=0.9, seed=3),
    "responses, metadata": _responses(SUM, metadata={"a": "b"}, user="ada"),
    "responses, top_logprobs": _responses(SUM, include=["message.output_text.logprobs"], top_logprobs=2),
    "responses, no such model": rejected(_responses(SUM, model="other")),
    "responses, no input": rejected(_responses([])),
    "responses, input of a wrong type": rejected(_responses(5)),
    "responses, temperature of a wrong type": rejected(_responses(SUM, temperature="hot")),
    "messages": _messages(SUM),
    "messages, to the end": _messages(SUM, max_tokens=40),
    "messages, system": _messages(COLORS, system="Be terse."),
    "messages, blocks": _messages([{"role": "user", "content": [{"type": "text", "text": SUM}]}]),
    "messages, turns": _messages([each for each in TURNS if each["role"] != "system"]),
    "messages, stopped": _messages(COLORS, stop_sequences=["Blue"], max_tokens=30),
    "messages, sampled among one": _messages(STORY, temperature=0.9, top_k=1, top_p=0.9),
    "messages, no max_tokens": rejected(as_is(Request(MESSAGES, {"model": MODEL, "messages": _CHAT}))),
    "messages, no such model": rejected(_messages(SUM, model="other")),
    "messages, none": rejected(_messages([])),
    "messages, of a wrong type": rejected(Request(MESSAGES, {"model": MODEL, "messages": 5, "max_tokens": 3})),
    "generate": _generate({}),
    "generate, logprobs": _generate({"logprobs": 2}),
    "generate, prompt logprobs": as_is(_generate({"prompt_logprobs": 1, "max_tokens": 2})),
    "generate, stop ids": _generate({"stop_token_ids": [30]}),
    "generate, two": _generate({"n": 2, "temperature": 0.9, "seed": 5}),
    "generate, sampled": _generate({"temperature": 1.2, "top_k": 9, "seed": 6}),
    "generate, penalties": _generate({"presence_penalty": 1.0, "repetition_penalty": 1.2}),
    "generate, prompt ids": _generate({}, return_token_ids=True),
    "generate, text": _generate({}, output_mode="text"),
    "generate, no ids": rejected(_generate({}, token_ids=[])),
    "generate, an unknown id": rejected(_generate({}, token_ids=[49152])),
    "generate, no such model": rejected(_generate({}, model="other")),
    "generate, temperature too low": rejected(_generate({"temperature": -1})),
    "tokenize": _tokenize(prompt=FRANCE),
    "tokenize, strings": _tokenize(prompt="🥳 you", return_token_strs=True),
    "tokenize, nothing": _tokenize(prompt=""),
    "tokenize, messages": _tokenize(messages=_CHAT),
    "tokenize, messages without the reply's beginning": _tokenize(messages=_CHAT, add_generation_prompt=False),
    "tokenize, a message of a wrong type": rejected(_tokenize(messages=5)),
    "tokenize, no such model": rejected(_tokenize(prompt=FRANCE, model="other")),
    "detokenize": _detokenize(tokens=_IDS),
    "detokenize, nothing": _detokenize(tokens=[]),
    "detokenize, special tokens": _detokenize(tokens=[1, 504, 2]),
    "detokenize, a negative id": rejected(_detokenize(tokens=[-1])),
    "detokenize, tokens of a wrong type": rejected(_detokenize(tokens="x")),
}
