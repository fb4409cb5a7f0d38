"""Named attacks: what once made a background client wait or took gigabytes."""

import json
from collections.abc import Mapping

from tests.adversary import pictures, plain_server
from tests.adversary.attack import Attack
from tests.adversary.draws import UNKNOWN
from tests.adversary.fields import SAMPLING
from tests.adversary.values import (
    CONTEXT,
    LONG_TOKENS,
    MIB,
    VOCABULARY,
    Value,
    id_list,
    id_lists,
    list_of,
    long_text,
    many,
    small,
    texts,
    value_of,
    with_arguments,
)

_COMPLETIONS = "/v1/completions"
_CHATS = "/v1/chat/completions"


def _attack(name: str, path: str = _COMPLETIONS, fields: Mapping[str, Value] | None = None, **how: object) -> Attack:
    given = {"max_tokens": small(4)[0], "temperature": small(1.0)[0]} if path == _COMPLETIONS else {}
    return Attack(name, path, given | dict(fields or {}), **how)  # type: ignore[arg-type]


def _echo(n: int) -> dict[str, Value]:
    return {"prompt": id_list(3_000), "echo": small(True)[0], "logprobs": small(3)[0], "n": small(n)[0]}


_TEXT_ECHO = {
    **{"prompt": long_text(90_000), "n": small(200)[0]},
    **{"echo": small(True)[0], "stream": small(True)[0]},
}
_SPECIAL, _NO_CHARACTER = VOCABULARY - 2, 222
"""A special token of the simulated model, and a byte with which no character begins."""
_SPECIAL_END = {
    "prompt": Value("32,000 ids, the last 64 special", lambda: json.dumps([5] * 31_936 + [_SPECIAL] * 64)),
    **{"n": small(16_384)[0], "max_tokens": small(2)[0]},
}
_NEVER_A_CHARACTER = {
    **{"prompt": small("hi")[0], "n": small(256)[0], "max_tokens": small(8_000)[0], "stream": small(True)[0]},
    "allowed_token_ids": small([_NO_CHARACTER])[0],
}
_ECHOED_IDS = {
    **{"prompt": id_list(30_000), "n": small(256)[0], "max_tokens": small(1)[0]},
    **{"echo": small(True)[0], "stream": small(True)[0]},
}
_CONTINUED = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello world " * 2_500}]
_CONTINUATION = {
    **{"messages": value_of("30 kB", _CONTINUED), "max_tokens": small(4)[0], "temperature": small(1.0)[0]},
    **{"add_generation_prompt": small(False)[0], "continue_final_message": small(True)[0]},
    **{"stream": small(True)[0], "n": small(600)[0]},
}
_SCORES = {
    **{"prompt": small("hi")[0], "n": small(200)[0], "max_tokens": small(300)[0]},
    **{"logprobs": small(20)[0], "ignore_eos": small(True)[0]},
}
_LARGE_EXTRA = value_of("8 MB", {"a": "x" * (8 * MIB)})
_LONG = {"prompt": long_text(30 * MIB), "truncate_prompt_tokens": small(10)[0]}
_ALLOWED = {"allowed_token_ids": id_list(VOCABULARY - 5, VOCABULARY - 5)}
_MOST_ALLOWED = {"allowed_token_ids": SAMPLING["allowed_token_ids"][1]}
_SCORED_PROMPT = {"prompt": id_list(24_000), "prompt_logprobs": small(20)[0], "max_tokens": small(1)[0]}
_OF_PLAIN = {"model": small(plain_server.MODEL)[0]}
_SCORES_AT_ONCE = {
    **{"prompt": small("hi")[0], "max_tokens": small(20_000)[0], "logprobs": small(20)[0]},
    "prompt_logprobs": small(0)[0],
}
_LONG_REPLY = {
    **{"prompt": small("hi")[0], "max_tokens": small(3_000)[0], "logprobs": small(20)[0]},
    **{"ignore_eos": small(True)[0]},
}
_UNNAMED_SCORES = {
    **{"messages": value_of("hi", [{"role": "user", "content": "hi"}]), "n": small(24)[0]},
    **{"logprobs": small(True)[0], "top_logprobs": small(20)[0], "temperature": small(1.0)[0]},
    **{"ignore_eos": small(True)[0]},
}
_NAMED_SCORES = _UNNAMED_SCORES | {"n": small(6)[0], "max_tokens": small(3_800)[0]}
_WHOLE_REPLIES = {
    **{"prompt": small("hi")[0], "n": small(10_000)[0], "max_tokens": small(1_500)[0], "ignore_eos": small(True)[0]},
}
_LONG_TOKEN_REPLIES = _WHOLE_REPLIES | {"allowed_token_ids": small(list(LONG_TOKENS))[0], "n": small(300)[0]}
_UNNAMED_REPLIES = {
    **{name: _UNNAMED_SCORES[name] for name in ("messages", "temperature", "ignore_eos")},
    "n": small(16)[0],
}
_ANOTHER_PROMPT = _attack("another client's", fields={"prompt": id_list(30_000)})
_ANOTHER_REPLY = _attack("another client's", fields={"prompt": small("hi")[0], "max_tokens": small(100)[0]})
_SHORT_MESSAGES = {
    **{"messages": many(2_000, "messages", '{"role":"user","content":"h"}'), "max_tokens": small(1)[0]},
}
_SOME_LISTS = {UNKNOWN: many(20_000, "lists", "[]")}
_SCORED = {
    "sequences": id_lists(10, 9_900),
    "prompt_lengths": many(10, "zeros", "0"),
    "top_logprobs": small(20)[0],
}
_ECHOED_PROMPT = {
    **{"prompt": id_list(24_000), "echo": small(True)[0], "logprobs": small(20)[0]},
    **{"max_tokens": small(4)[0], "stream": small(True)[0]},
}
_SGLANG_PROMPT = {
    **{"input_ids": id_list(24_000), "sampling_params.max_new_tokens": small(4)[0]},
    **{"return_logprob": small(True)[0], "logprob_start_len": small(0)[0], "top_logprobs_num": small(20)[0]},
}
_SGLANG_REPLY = {
    **{"input_ids": small([7])[0], "sampling_params.max_new_tokens": small(300)[0]},
    **{"sampling_params.n": small(16)[0], "sampling_params.ignore_eos": small(True)[0]},
    **{"return_logprob": small(True)[0], "top_logprobs_num": small(20)[0]},
}
_SCORED_ARRAYS = {
    "sequences": id_lists(7, 9_900),
    "prompt_lengths": many(7, "zeros", "0"),
    "top_logprobs": small(20)[0],
    "response_format": small("binary")[0],
}
_PARSED = {
    "messages": with_arguments("10,000,000 lists", lambda: list_of("[]", 10_000_000)),
    "max_tokens": small(4)[0],
}
_PARSED_TOGETHER = _PARSED | {"messages": with_arguments("40,000 lists", lambda: list_of("[]", 40_000), calls=240)}
_CUT_TEXT = {"texts": texts(1, 28 * MIB), "truncate": small("END")[0], "max_tokens": small(10)[0]}
_CUT_DOCUMENT = {"query": small("x")[0], "documents": texts(1, 28 * MIB), "truncate_prompt_tokens": small(10)[0]}

ROWS = {
    attack.name: attack
    for attack in (
        _attack("echo", fields=_echo(170)),
        _attack("echo, nobody reads", fields=_echo(170), reading="stand still"),
        _attack("allowed", fields={"prompt": id_lists(2_000, 3), **_ALLOWED}),
        _attack("truncate", fields=_LONG),
        _attack("truncate, six", fields=_LONG, copies=6),
        _attack(
            "unknown",
            fields={"prompt": small("hi")[0], UNKNOWN: many(500_000, "lists", "[]"), "stream": small(True)[0]},
        ),
        _attack("unfinished", fields={"prompt": long_text(20 * MIB)}, sending="never finished", copies=60),
        _attack("detokenize", "/detokenize", {"tokens": id_list(4_000_000)}),
        _attack("tokenize, 30 at once", "/tokenize", {"prompt": long_text(400_000)}, copies=30),
        _attack("tokenize, a flood", "/tokenize", {"prompt": long_text(400_000)}, copies=150),
        _attack("prompts", fields={"prompt": id_lists(16_384, 3)}),
        _attack("prompts, too many", fields={"prompt": id_lists(65_536, 3)}),
        _attack("lists", fields={"prompt": small("hi")[0], UNKNOWN: many(10_000_000, "lists", "[]")}),
        _attack("trl", "/get_sequence_logprobs/", _SCORED),
        _attack("trl, arrays", "/get_sequence_logprobs/", _SCORED_ARRAYS),
        _attack("echoed ids with scores, streamed", fields=_ECHOED_PROMPT),
        _attack("echoed ids, streamed", fields=_ECHOED_IDS),
        _attack("a prompt that ends with special tokens", fields=_SPECIAL_END),
        _attack("bytes that become no character", fields=_NEVER_A_CHARACTER),
        _attack("sglang, scores of a prompt", "/generate", _SGLANG_PROMPT),
        _attack("sglang, scores of a prompt, streamed", "/generate", _SGLANG_PROMPT | {"stream": small(True)[0]}),
        _attack("sglang, scores of replies", "/generate", _SGLANG_REPLY),
        _attack("cut texts to embed", "/v2/embed", _CUT_TEXT, copies=12),
        _attack("cut documents to rank", "/rerank", _CUT_DOCUMENT, copies=12),
        *(
            _attack(f"{value.name}, six", _CHATS, {"messages": value, "max_tokens": small(4)[0]}, copies=6)
            for value in pictures.LARGE
        ),
        _attack("arguments", fields={"prompt": id_lists(200, 3), "vllm_xargs": _LARGE_EXTRA}),
        _attack("arguments, six", fields={"prompt": small("hi")[0], "vllm_xargs": _LARGE_EXTRA}, copies=6),
        _attack(
            "arguments, six that run",
            fields={"prompt": small("hi")[0], "vllm_xargs": _LARGE_EXTRA, "max_tokens": small(1_000)[0]},
            copies=6,
        ),
        _attack(
            "allowed, six that run",
            fields={"prompt": small("hi")[0], **_MOST_ALLOWED, "max_tokens": small(1_000)[0]},
            copies=6,
        ),
        _attack("arguments of a tool call", _CHATS, _PARSED),
        _attack("arguments of many tool calls", _CHATS, _PARSED_TOGETHER),
        _attack("biases", fields={"prompt": id_lists(256, 3), "logit_bias": SAMPLING["logit_bias"][0]}),
        _attack("bad words", fields={"prompt": id_lists(2_000, 3), "bad_words": SAMPLING["bad_words"][0]}),
        _attack("echoed text, streamed", fields=_TEXT_ECHO),
        _attack("prompt ids, streamed", _CHATS, {**_CONTINUATION, "return_token_ids": small(True)[0]}),
        _attack("scores, at once", fields=_SCORES),
        _attack("prompt scores, 24 run", fields=_SCORED_PROMPT | {"max_tokens": small(6_000)[0]}, copies=24),
        _attack("prompt scores, 36 unread", fields=_SCORED_PROMPT, reading="stand still", copies=36),
        _attack("scores, a long reply", fields=_LONG_REPLY),
        _attack("scores of replies whose length is not named", _CHATS, _UNNAMED_SCORES),
        _attack("scores of replies, as long as may be, two", _CHATS, _NAMED_SCORES, copies=2),
        _attack("whole replies", fields=_WHOLE_REPLIES),
        _attack("whole replies of long tokens, six", fields=_LONG_TOKEN_REPLIES, copies=6),
        _attack("whole replies whose length is not named", _CHATS, _UNNAMED_REPLIES, copies=16),
        _attack(
            "prompt scores, 24 run, and another client's prompt",
            fields=_SCORED_PROMPT | {"max_tokens": small(6_000)[0]},
            copies=24,
            beside=_ANOTHER_PROMPT,
        ),
        _attack(
            "replies, six hundred, and another client's",
            fields={"prompt": id_list(20_000), "max_tokens": small(6_000)[0]},
            copies=600,
            beside=_ANOTHER_REPLY,
        ),
        _attack("n", fields={"prompt": id_list(CONTEXT - 64), "n": small(16_384)[0]}),
        _attack("n, sixty-four", fields={"prompt": small("hi")[0], "n": small(16_384)[0]}, copies=64),
        _attack("n, a plain server's", fields=_OF_PLAIN | {"prompt": id_list(30_000), "n": small(256)[0]}),
        _attack("prompt scores, a plain server's", fields=_OF_PLAIN | _SCORED_PROMPT),
        _attack("scores, a plain server's", fields=_OF_PLAIN | _SCORES_AT_ONCE),
        _attack("chats of 60 KB, five hundred", _CHATS, _SHORT_MESSAGES, copies=500),
        _attack("unknown lists of 60 KB, five hundred", fields={"prompt": small("hi")[0], **_SOME_LISTS}, copies=500),
        _attack("texts of 60 KB to count, four hundred", "/tokenize", {"prompt": long_text(60_000)}, copies=400),
        _attack("ids of 60 KB to decode, three hundred", "/detokenize", {"tokens": id_list(12_000)}, copies=300),
        _attack("the API's document, a thousand", "/openapi.json", method="GET", copies=1_000),
    )
}
