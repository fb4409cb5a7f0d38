"""Writes the vision model: `python -m tests.vision_model.build TOKENIZER FOLDER`."""

import sys
from typing import Any

from tests.lazily import Lazily

torch = Lazily("torch")
transformers = Lazily("transformers")
pil_processors: Any = Lazily("transformers.models.idefics3.image_processing_pil_idefics3")

TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}"
    "{% for part in message['content'] %}{% if part['type'] == 'image' %}<image>"
    "{% elif part['type'] == 'text' %}{{ part['text'] }}{% endif %}{% endfor %}{% endif %}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_TILES = [f"<row_{row}_col_{column}>" for row in range(1, 7) for column in range(1, 7)]
_SPECIAL = ["<image>", "<fake_token_around_image>", "<global-img>", "<end_of_utterance>", *_TILES]
_TILE_PIXELS, _LONGEST_EDGE = 128, 512


def main(source: str, folder: str) -> None:
    """Make weights, processor and tokenizer."""
    torch.manual_seed(11)
    tokenizer = transformers.AutoTokenizer.from_pretrained(source)
    added = [transformers.AddedToken(text, special=True, normalized=False) for text in _SPECIAL]
    tokenizer.add_special_tokens({"additional_special_tokens": added})
    tokenizer.chat_template = TEMPLATE
    text = {
        **{"model_type": "llama", "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2},
        **{"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 64, "rms_norm_eps": 1e-5},
        **{"vocab_size": (len(tokenizer) + 63) // 64 * 64, "max_position_embeddings": 4096},
        **{"bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id},
        "tie_word_embeddings": False,
    }
    vision = {
        **{"model_type": "idefics3_vision", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2},
        **{"num_attention_heads": 2, "image_size": _TILE_PIXELS, "patch_size": 16},
    }
    config = transformers.Idefics3Config(
        vision_config=vision,
        text_config=text,
        image_token_id=tokenizer.convert_tokens_to_ids("<image>"),
        scale_factor=2,
        pad_token_id=tokenizer.pad_token_id,
        tie_word_embeddings=False,
    )
    model = transformers.Idefics3ForConditionalGeneration(config)
    with torch.no_grad():
        for name, weights in model.named_parameters():
            if weights.ndim > 1 and "embed" not in name:
                weights.mul_(4.0)  # else all pictures look alike to it
    images = pil_processors.Idefics3ImageProcessorPil(
        size={"longest_edge": _LONGEST_EDGE}, max_image_size={"longest_edge": _TILE_PIXELS}
    )
    processor = transformers.Idefics3Processor(
        image_processor=images, tokenizer=tokenizer, image_seq_len=16, chat_template=TEMPLATE
    )
    for part in (model, processor, tokenizer):
        part.save_pretrained(folder)


if __name__ == "__main__":
    main(*sys.argv[1:])
