"""What the vision models have in common: tokenizer, template, the sizes of the language model, and random weights."""

from collections.abc import Sequence
from typing import Any

from tests.lazily import Lazily

transformers = Lazily("transformers")
torch = Lazily("torch")

_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}"
    "{% for part in message['content'] %}{% if part['type'] == 'image' %}PICTURE"
    "{% elif part['type'] == 'text' %}{{ part['text'] }}{% endif %}{% endfor %}{% endif %}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def chat_template(picture: str) -> str:
    """Return a template with this text in the place of each picture."""
    return _TEMPLATE.replace("PICTURE", picture)


def extended_tokenizer(source: str, special: Sequence[str], template: str) -> Any:
    """Return a tokenizer with more special tokens."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(source)
    added = [transformers.AddedToken(text, special=True, normalized=False) for text in special]
    tokenizer.add_special_tokens({"additional_special_tokens": added})
    tokenizer.chat_template = template
    return tokenizer


def text_sizes(tokenizer: Any) -> dict[str, Any]:
    """Return what the configuration of a small language model has for a tokenizer."""
    return {
        **{"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2},
        **{"num_attention_heads": 2, "num_key_value_heads": 1, "rms_norm_eps": 1e-5},
        **{"vocab_size": (len(tokenizer) + 63) // 64 * 64, "max_position_embeddings": 4096},
        **{"bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id},
        "tie_word_embeddings": False,
    }


def strengthen(model: Any, factor: float) -> None:
    """Multiply a model's random weights, else all pictures look alike to it."""
    with torch.no_grad():
        for name, weights in model.named_parameters():
            if weights.ndim > 1 and "embed" not in name:
                weights.mul_(factor)


def save_parts(folder: str, *parts: Any) -> None:
    """Write a model with what belongs to it."""
    for part in parts:
        part.save_pretrained(folder)
