"""Callers, models, priorities, and what only concerns caches, transfers and extensions."""

from typing import Any

from tests.conformance.parity.corpus.prompts_used import FRANCE, SUM
from tests.conformance.parity.request import MODEL, Request, as_is, chat, rejected, text

# Fields with an effect elsewhere or none at all, on both routes: what they are given here changes nothing.
_HARMLESS: dict[str, dict[str, Any]] = {
    "user": {"user": "ada"},
    "request id": {"request_id": "my-own-id"},
    "session": {"session_id": "talk-1"},
    "salt": {"cache_salt": "pepper"},
    "salt of null": {"cache_salt": None},
    "priority of zero": {"priority": 0},
    "a priority without an order": {"priority": 1},
    "a model without a name": {"model": ""},
    "routed experts": {"routed_experts_prompt_start": 3},
    "token offsets": {"return_token_offsets": True},
    "media as no tensors": {"mm_payload": "none"},
    "media of the old kind": {"return_mm_kwargs": False},
    "extension arguments": {"vllm_xargs": {"a": 1, "b": "two", "c": [1.5]}},
    "transfer of keys and values": {"kv_transfer_params": {"a": 1}},
    "transfer of encodings": {"ec_transfer_params": {"a": 1}},
    "unknown fields": {"flavour": "sweet", "depth": {"a": [1]}},
    "metadata": {"metadata": {"a": "b"}, "store": False, "service_tier": "auto", "best_of": 1},
}
_WRONG: dict[str, dict[str, Any]] = {
    "another model": {"model": "other"},
    "a model of a wrong type": {"model": 5},
    "a user of a wrong type": {"user": 5},
    "a request id of a wrong type": {"request_id": 5},
    "a session of a wrong type": {"session_id": 5},
    "an empty salt": {"cache_salt": ""},
    "a salt with a slash": {"cache_salt": "a/b"},
    "a salt that is too long": {"cache_salt": "x" * 129},
    "a salt of a wrong type": {"cache_salt": 5},
    "a priority that is too large": {"priority": 2**63},
    "a priority of a wrong type": {"priority": "high"},
    "negative routed experts": {"routed_experts_prompt_start": -1},
    "media as what": {"mm_payload": "pictures"},
    "extension arguments that are too large": {"vllm_xargs": {"a": 2**65}},
    "extension arguments of a wrong type": {"vllm_xargs": {"a": {"b": 1}}},
    "a transfer of a wrong type": {"kv_transfer_params": "x"},
    "a transfer of encodings of a wrong type": {"ec_transfer_params": []},
    "token offsets of a wrong type": {"return_token_offsets": "perhaps"},
    "old media of a wrong type": {"return_mm_kwargs": "perhaps"},
}


def _both(**options: Any) -> tuple[Request, Request]:
    return chat(SUM, **{"max_tokens": 3, **options}), text(FRANCE, **{"max_tokens": 3, **options})


def _with_header(request: Request, name: str, value: str) -> Request:
    return as_is(Request(request.path, request.body, headers={name: value}))


REQUESTS = {
    **{name: _both(**options)[0] for name, options in _HARMLESS.items()},
    **{f"text, {name}": _both(**options)[1] for name, options in _HARMLESS.items()},
    **{name: rejected(_both(**options)[0]) for name, options in _WRONG.items()},
    **{f"text, {name}": rejected(_both(**options)[1]) for name, options in _WRONG.items()},
    "no model": chat(SUM, model=None, max_tokens=3),
    "text, no model": text(FRANCE, model=None, max_tokens=3),
    "the model by its name": chat(SUM, model=MODEL, max_tokens=3),
    "a request id in a header": _with_header(_both()[0], "x-request-id", "from-a-header"),
    "text, a request id in a header": _with_header(_both()[1], "x-request-id", "from-a-header"),
    "a request id in a header and the body": _with_header(_both(request_id="of-the-body")[0], "x-request-id", "above"),
    "a session in a header": _with_header(_both()[0], "x-session-id", "talk-2"),
    "a priority in a header": _with_header(_both()[0], "x-vllm-priority", "0"),
    "media of a chat": chat(SUM, media_io_kwargs={}, mm_processor_kwargs={}, max_tokens=3),
    "media options that are not trusted": rejected(chat(SUM, media_io_kwargs={"image": {"a": 1}})),
    "processor options that are not trusted": rejected(chat(SUM, mm_processor_kwargs={"a": 1})),
    "media options of a wrong type": rejected(chat(SUM, media_io_kwargs={"image": 1})),
    "prompt ids by transfer": chat(SUM, kv_transfer_params={"prompt_token_ids": [504, 3575]}, max_tokens=3),
    "prompt ids by transfer, unknown": rejected(chat(SUM, kv_transfer_params={"prompt_token_ids": [49152]})),
    "prompt ids by transfer, none": rejected(chat(SUM, kv_transfer_params={"prompt_token_ids": []})),
}
