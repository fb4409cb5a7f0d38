"""Applies tokenizer_config.json to tokenizer.json: named special tokens, and added tokens of the backend."""

from collections.abc import Mapping
from typing import Any

from tokenizers import AddedToken, Tokenizer

STANDARD_NAMES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


def merge_legacy_map(config: dict[str, Any], legacy: Mapping[str, Any]) -> dict[str, Any]:
    """Merge special_tokens_map.json over a config without added_tokens_decoder, as transformers does."""
    return config if "added_tokens_decoder" in config else {**config, **legacy}


def named(config: Mapping[str, Any]) -> dict[str, str]:
    """Return the named special tokens for templates: the standard ones first, then the model's own."""
    found = {name: content(config.get(name)) for name in STANDARD_NAMES}
    for name, token in config.items():
        if name.endswith("_token") and name not in found:
            found[name] = content(token)
    extra = config.get("extra_special_tokens")
    if isinstance(extra, dict):
        found |= {name: content(token) for name, token in extra.items()}
    return {name: text for name, text in found.items() if text is not None}


def content(token: object) -> str | None:
    """Return the text of a token that is given as text or as an AddedToken object."""
    if isinstance(token, dict):
        token = token.get("content")
    return token if isinstance(token, str) else None


def register(backend: Tokenizer, config: Mapping[str, Any]) -> None:
    """Add the tokens to the backend that only the config has, in the order of transformers."""
    known = {repr(token) for token in backend.get_added_tokens_decoder().values()}
    decoder = sorted((int(index), token) for index, token in (config.get("added_tokens_decoder") or {}).items())
    new = [token for token in (_added_token(fields) for _, fields in decoder) if repr(token) not in known]
    taken = {token.content for token in backend.get_added_tokens_decoder().values()} | {t.content for t in new}
    names = named(config)
    for text in [*names.values(), *_unnamed(config)]:
        if text not in taken:
            taken.add(text)
            new.append(AddedToken(text, special=True))
    special = set(names.values())
    for token in new:
        token.special = token.special or token.content in special
    if new:
        backend.add_tokens(new)


def _unnamed(config: Mapping[str, Any]) -> list[str]:
    listed = config.get("extra_special_tokens") or config.get("additional_special_tokens") or ()
    return [text for token in listed if (text := content(token)) is not None] if isinstance(listed, list) else []


def _added_token(fields: Mapping[str, Any]) -> AddedToken:
    return AddedToken(**{name: value for name, value in fields.items() if name != "__type"})
