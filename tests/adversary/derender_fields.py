"""The fields of the derender routes: generated ids, with scores and in chunks, beside the fields of the request."""

import json
from functools import partial

from tests.adversary.fields import CHAT, COMPLETION, ID_LIST, Table
from tests.adversary.values import Value, id_list, inside, list_of, many, small, value_of

_PART = 127
"""The id of a byte that begins a character."""


def _listed(value: Value) -> str:
    return f"[{value.json_text()}]"


_POSITION = {"token_id": 7, "logprob": -1.5, "rank": 1, "top_logprobs": [{"token_id": 8, "logprob": -2.5, "rank": 2}]}
_ONE_REPLY = {
    **{"request_id": "x", "output_mode": "tokens", "prompt_token_ids": [7], "metrics": {}, "kv_transfer_params": {}},
    "prompt_logprobs": [None],
    "choices": [
        {
            **{"index": 0, "finish_reason": "stop", "stop_reason": "x", "token_ids": [7]},
            "logprobs": {"content": [_POSITION]},
        }
    ],
}
_OF_IDS = Value("500,000 ids", lambda: '{"choices":[{"index":0,"token_ids":' + id_list(500_000).json_text() + "}]}")
_OF_SCORES = Value(
    "30,000 scored ids",
    lambda: (
        '{"choices":[{"index":0,"token_ids":'
        + id_list(30_000).json_text()
        + ',"logprobs":{"content":'
        + many(30_000, "", '{"token_id":7,"logprob":-1,"top_logprobs":[{"token_id":8,"logprob":-2}]}').json_text()
        + "}}]}"
    ),
)
_OF_CHOICES = Value(
    "60,000 choices", lambda: inside("choices", many(60_000, "", '{"index":0,"token_ids":[7]}')).json_text()
)
_OF_PARTS = Value(
    "30,000 parts of characters",
    lambda: '{"choices":[{"index":0,"token_ids":' + list_of(str(_PART), 30_000) + "}]}",
)
_REPLIES = [value_of("all fields", _ONE_REPLY), _OF_IDS, _OF_SCORES, _OF_CHOICES]
_ONES = many(30_000, "", "1").json_text()
_DERENDER: Table = {
    "stream": small(True),
    "model": CHAT["model"],
    "generate_chunk": [
        value_of("all fields", {**_ONE_REPLY, "usage": {"prompt_tokens": 1, "completion_tokens": 1}}),
        *_REPLIES[1:],
        _OF_PARTS,
    ],
    "stream_state": [
        value_of(
            "all fields",
            {
                **{"prev_tokens": ["a"], "prefix_offset": 0, "read_offset": 1, "role_sent": True},
                **{"logprob_context_token_ids": [7], "logprob_text_offset": 1, "output_token_ids": [7]},
                **{"output_chunk_lens": [1], "tools_streamed": True, "last_tool_call_ids": ["x"]},
                **{"sent_content": 1, "sent_reasoning": 0, "sent_arguments": [0]},
            },
        ),
        Value("100 texts of 100,000 as tokens", lambda: '{"prev_tokens":' + list_of(f'"{"x" * 100_000}"', 100) + "}"),
        Value(
            "30,000 chunks",
            lambda: '{"output_token_ids":' + id_list(30_000).json_text() + ',"output_chunk_lens":' + _ONES + "}",
        ),
    ],
    "prompt_token_ids": ID_LIST,
}
DERENDER_CHAT: Table = {
    **_DERENDER,
    "generate_response": _REPLIES,
    "prompt_tokens": small(1),
    **{f"chat_request.{name}": values for name, values in CHAT.items()},
}
DERENDER_COMPLETION: Table = {
    **_DERENDER,
    "generate_responses": [Value(f"[{each.name}]", partial(_listed, each)) for each in _REPLIES]
    + [many(16_384, "replies", json.dumps(_ONE_REPLY))],
    "prompt_tokens": [*small(1), id_list(16_384)],
    **{f"completion_request.{name}": values for name, values in COMPLETION.items()},
}
