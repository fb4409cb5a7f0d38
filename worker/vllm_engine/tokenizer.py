"""Serializes the engine's tokenizer to files from which a coordinator rebuilds it exactly."""

import json
from typing import Any

from tokenizers import Tokenizer
from vllm.transformers_utils.chat_templates.registry import get_chat_template_fallback_path

from tokenwire.errors import EngineFailed

_SPECIAL_TOKENS = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


def tokenizer_files(tokenizer: Any, model_type: str) -> dict[str, bytes]:
    """Return the loaded tokenizer, as changed by vLLM and transformers, as deterministic bytes by file name."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if not isinstance(backend, Tokenizer):
        raise EngineFailed(
            f"The model's tokenizer ({type(tokenizer).__name__}) cannot be saved as tokenizer.json, which coordinators "
            "need. Choose another with --tokenizer or --tokenizer-mode hf."
        )
    copy = Tokenizer.from_str(backend.to_str())
    # Both are left over from earlier calls; transformers sets them for each call.
    copy.no_truncation()
    copy.no_padding()
    config = _config(tokenizer, model_type)
    return {
        "tokenizer.json": copy.to_str().encode(),
        "tokenizer_config.json": json.dumps(config, ensure_ascii=False, indent=2, sort_keys=True).encode(),
    }


def _config(tokenizer: Any, model_type: str) -> dict[str, Any]:
    special = tokenizer.special_tokens_map
    config: dict[str, Any] = {name: str(special[name]) for name in _SPECIAL_TOKENS if special.get(name)}
    named = {str(token) for token in config.values()}
    config["additional_special_tokens"] = [str(t) for t in tokenizer.all_special_tokens if str(t) not in named]
    config["clean_up_tokenization_spaces"] = bool(getattr(tokenizer, "clean_up_tokenization_spaces", False))
    template = _chat_template(tokenizer, model_type)
    if template is not None:
        config["chat_template"] = template
    return config


def _chat_template(tokenizer: Any, model_type: str) -> str | list[dict[str, str]] | None:
    template = getattr(tokenizer, "chat_template", None)
    if isinstance(template, dict):
        return [{"name": name, "template": template[name]} for name in sorted(template)]
    if template:
        return str(template)
    fallback = get_chat_template_fallback_path(model_type, str(getattr(tokenizer, "name_or_path", "")))
    return None if fallback is None else fallback.read_text(encoding="utf-8")
