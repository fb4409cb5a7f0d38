"""The fields of the routes of pooling models, as in fields.py."""

from tests.adversary import fields, schemas
from tests.adversary.values import OPEN_OBJECTS, small, value_of

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
