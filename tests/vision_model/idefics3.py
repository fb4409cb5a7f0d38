"""Writes the Idefics3 model: a picture becomes tiles, as many as its shape needs, between tokens of text.

`python -m tests.vision_model.idefics3 TOKENIZER FOLDER`
"""

import sys
from typing import Any

from tests.lazily import Lazily
from tests.vision_model.parts import chat_template, extended_tokenizer, save_parts, strengthen, text_sizes

transformers = Lazily("transformers")
torch = Lazily("torch")
pil_processors: Any = Lazily("transformers.models.idefics3.image_processing_pil_idefics3")

TEMPLATE = chat_template("<image>")
_TILES = [f"<row_{row}_col_{column}>" for row in range(1, 7) for column in range(1, 7)]
_SPECIAL = ["<image>", "<fake_token_around_image>", "<global-img>", "<end_of_utterance>", *_TILES]
_TILE_PIXELS, _LONGEST_EDGE = 128, 512


def main(source: str, folder: str) -> None:
    """Make weights, processor and tokenizer."""
    torch.manual_seed(11)
    tokenizer = extended_tokenizer(source, _SPECIAL, TEMPLATE)
    vision = {
        **{"model_type": "idefics3_vision", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2},
        **{"num_attention_heads": 2, "image_size": _TILE_PIXELS, "patch_size": 16},
    }
    config = transformers.Idefics3Config(
        vision_config=vision,
        text_config={"model_type": "llama", "head_dim": 64, **text_sizes(tokenizer)},
        image_token_id=tokenizer.convert_tokens_to_ids("<image>"),
        scale_factor=2,
        pad_token_id=tokenizer.pad_token_id,
        tie_word_embeddings=False,
    )
    model = transformers.Idefics3ForConditionalGeneration(config)
    strengthen(model, 4.0)
    images = pil_processors.Idefics3ImageProcessorPil(
        size={"longest_edge": _LONGEST_EDGE}, max_image_size={"longest_edge": _TILE_PIXELS}
    )
    processor = transformers.Idefics3Processor(
        image_processor=images, tokenizer=tokenizer, image_seq_len=16, chat_template=TEMPLATE
    )
    save_parts(folder, model, processor, tokenizer)


if __name__ == "__main__":
    main(*sys.argv[1:])
