"""Writes the Qwen2.5-VL model: positions of its prompts have three dimensions, and its processor needs torchvision.

`python -m tests.vision_model.qwen2_5_vl TOKENIZER FOLDER`
"""

import sys

from tests.lazily import Lazily
from tests.vision_model.parts import chat_template, extended_tokenizer, save_parts, strengthen, text_sizes

transformers = Lazily("transformers")
torch = Lazily("torch")

TEMPLATE = chat_template("<|vision_start|><|image_pad|><|vision_end|>")
_TOKEN_IDS = {
    "image_token_id": "<|image_pad|>",
    "video_token_id": "<|video_pad|>",
    "vision_start_token_id": "<|vision_start|>",
    "vision_end_token_id": "<|vision_end|>",
}
_SPECIAL = [*_TOKEN_IDS.values(), "<|vision_pad|>"]
_PIXELS = {"shortest_edge": 56 * 56, "longest_edge": 28 * 28 * 256}


def main(source: str, folder: str) -> None:
    """Make weights, processor and tokenizer."""
    torch.manual_seed(11)
    tokenizer = extended_tokenizer(source, _SPECIAL, TEMPLATE)
    text = text_sizes(tokenizer)
    rope = {"rope_type": "default", "mrope_section": [8, 12, 12], "rope_theta": 10_000.0}
    vision = {
        **{"depth": 2, "hidden_size": 64, "intermediate_size": 128, "num_heads": 2, "patch_size": 14},
        **{"spatial_merge_size": 2, "temporal_patch_size": 2, "window_size": 56, "fullatt_block_indexes": [1]},
        "out_hidden_size": text["hidden_size"],
    }
    config = transformers.Qwen2_5_VLConfig(
        text_config={"rope_parameters": rope, **text},
        vision_config=vision,
        tie_word_embeddings=False,
        **{name: tokenizer.convert_tokens_to_ids(token) for name, token in _TOKEN_IDS.items()},
    )
    model = transformers.Qwen2_5_VLForConditionalGeneration(config)
    strengthen(model, 3.0)
    processor = transformers.Qwen2_5_VLProcessor(
        image_processor=transformers.Qwen2VLImageProcessor(size=_PIXELS),
        tokenizer=tokenizer,
        video_processor=transformers.Qwen2VLVideoProcessor(),
        chat_template=TEMPLATE,
    )
    save_parts(folder, model, processor, tokenizer)


if __name__ == "__main__":
    main(*sys.argv[1:])
