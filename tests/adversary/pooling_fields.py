"""The fields of the routes of pooling models, as in fields.py."""

from tests.adversary import fields, schemas
from tests.adversary.values import MIB, OPEN_OBJECTS, Value, long_text, many, small, texts, value_of

COMMON: fields.Table = {
    **{name: fields.COMPLETION[name] for name in ("model", "user", "truncate_prompt_tokens", "truncation_side")},
    **{name: fields.COMPLETION[name] for name in ("request_id", "priority", "cache_salt")},
    "padding": small("max_length"),
    "mm_processor_kwargs": OPEN_OBJECTS,
    "use_activation": small(False),
}
_CHAT: fields.Table = {
    **COMMON,
    **{name: fields.CHAT[name] for name in ("add_generation_prompt", "continue_final_message", "add_special_tokens")},
    **{name: fields.CHAT[name] for name in ("chat_template", "chat_template_kwargs", "media_io_kwargs")},
    "messages": [*schemas.CHATS, *schemas.CONVERSATIONS],
    "input": [*fields.COMPLETION["prompt"], *schemas.CHATS, *schemas.CONVERSATIONS],
}
_ENCODING: fields.Table = {
    "encoding_format": small("float", "base64", "bytes", "bytes_only"),
    "embed_dtype": small("float16", "fp8_e4m3"),
    "endianness": small("big"),
}
EMBEDDINGS: fields.Table = {**_CHAT, **_ENCODING, "dimensions": [*small(1, -(2**62)), value_of("beyond", 2**70)]}
_TEXTS = [long_text(4_096), long_text(8 * MIB), texts(2_000, 64), texts(16_384, 8), texts(65_536, 1), texts(6, 5 * MIB)]
_SCORING: fields.Table = {
    **COMMON,
    "max_tokens_per_query": small(3, 1_000),
    "max_tokens_per_doc": small(3, 1_000),
    "instruction": [long_text(MIB)],
    "chat_template_kwargs": OPEN_OBJECTS,
}
_COHERE: fields.Table = {
    **{name: COMMON[name] for name in ("model", "priority")},
    "input_type": [long_text(MIB)],
    "texts": _TEXTS,
    "images": [texts(250_000, 1), texts(6, 5 * MIB)],
    "inputs": [
        many(16_384, "of a word", '{"content":[{"type":"text","text":"hi"}]}'),
        many(4, "of 4 MB", '{"content":[{"type":"text","text":"' + "x" * (4 * MIB) + '"}]}'),
    ],
    "output_dimension": small(1, -(2**62)),
    "embedding_types": small(["float", "binary", "ubinary", "base64"]),
    "truncate": small("NONE", "START", "END"),
    "max_tokens": small(1, 1_000),
}
_SCORE: fields.Table = {**_SCORING, "data_1": _TEXTS, "data_2": _TEXTS}
_RERANK: fields.Table = {**_SCORING, "query": _TEXTS[:2], "documents": _TEXTS, "top_n": small(1)}
TABLES: dict[str, fields.Table] = {
    "/v1/embeddings": EMBEDDINGS,
    "/v2/embed": _COHERE,
    **dict.fromkeys(("/score", "/v1/score"), _SCORE),
    **dict.fromkeys(("/rerank", "/v1/rerank", "/v2/rerank"), _RERANK),
    "/classify": _CHAT,
    "/pooling": {**_CHAT, **_ENCODING, "task": small("token_embed"), "dimensions": small(1), "data": OPEN_OBJECTS},
}
_INPUT: dict[str, Value] = {"input": small("hi")[0]}
_PAIR: dict[str, Value] = {"data_1": small("hi")[0], "data_2": small("ho")[0]}
_QUERY: dict[str, Value] = {"query": small("hi")[0], "documents": small("ho")[0]}
BASES: dict[str, dict[str, Value]] = {
    **dict.fromkeys(("/v1/embeddings", "/classify", "/pooling"), _INPUT),
    "/v2/embed": {"texts": small(["hi"])[0]},
    **dict.fromkeys(("/score", "/v1/score"), _PAIR),
    **dict.fromkeys(("/rerank", "/v1/rerank", "/v2/rerank"), _QUERY),
}
