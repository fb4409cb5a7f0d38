"""Chats with embeddings in the place of pictures, in each form that vLLM's chat completions take."""

import base64
import io
import json
from pathlib import Path
from typing import Any

from tests.lazily import Lazily

torch = Lazily("torch")
numpy = Lazily("numpy")

_SIDE = 2
"""How many patches side by side become one embedding."""


def saved(tensor: Any) -> str:
    """Return a tensor as torch.save writes it, in base64."""
    target = io.BytesIO()
    torch.save(tensor, target)
    return base64.b64encode(target.getvalue()).decode()


def _as_array(tensor: Any) -> str:
    target = io.BytesIO()
    numpy.save(target, tensor.numpy())
    return base64.b64encode(target.getvalue()).decode()


def embeds_part(embeds: Any) -> dict[str, Any]:
    """Return embeddings as a part of a message."""
    return {"type": "image_embeds", "image_embeds": embeds}


def embedding_chats(model: Path) -> dict[str, list[dict[str, Any]]]:
    """Return chats by name, for a Qwen2.5-VL."""
    width = json.loads((model / "config.json").read_text())["vision_config"]["out_hidden_size"]

    def embeds(seed: int, *grid: int) -> Any:
        rows = grid[0] * grid[1] * grid[2] // _SIDE**2
        return torch.randn(rows, width, generator=torch.Generator().manual_seed(seed))

    wide, tall = embeds(1, 1, 4, 8), embeds(2, 1, 12, 4)
    of_wide = embeds_part({"image_embeds": saved(wide), "image_grid_thw": saved(torch.tensor([1, 4, 8]))})
    of_tall = embeds_part({"image_embeds": saved(tall), "image_grid_thw": [1, 12, 4]})
    of_array = embeds_part({"image_embeds": _as_array(wide), "image_grid_thw": [1, 4, 8]})
    halves = embeds_part({"image_embeds": saved(wide.bfloat16()), "image_grid_thw": [1, 4, 8]})
    sparse = embeds_part({"image_embeds": saved(tall.relu().to_sparse()), "image_grid_thw": [1, 12, 4]})
    contents: dict[str, list[Any]] = {
        "before text": [of_wide, "What is this?"],
        "with a grid of numbers behind text": ["What is this?", of_tall],
        "from NumPy between texts": ["This ", of_array, " is what?"],
        "in bfloat16": [halves, "?"],
        "sparse": [sparse, "?"],
        "two": [of_wide, "and", of_wide, "differ?"],
        "three of two sizes": [of_tall, "one", of_wide, "two", of_tall],
    }
    return {name: [{"role": "user", "content": _parts(content)}] for name, content in contents.items()}


def _parts(content: list[Any]) -> list[Any]:
    return [{"type": "text", "text": part} if isinstance(part, str) else part for part in content]


def wrong_embeddings() -> dict[str, Any]:
    """Return embeddings that are not the model's, by what the error says of them."""
    rows, grid = torch.ones(8, 128), [1, 4, 8]
    return {
        "has rows of 64 numbers, but the model takes": {"image_embeds": saved(rows[:, :64]), "image_grid_thw": grid},
        "has 7 rows, but its image_grid_thw": {"image_embeds": saved(rows[:7]), "image_grid_thw": grid},
        "multiples of 2": {"image_embeds": saved(rows), "image_grid_thw": [1, 2, 16 + 1]},
        "not finite": {"image_embeds": saved(rows / 0), "image_grid_thw": grid},
        "must have 2 dimensions": {"image_embeds": saved(rows[0]), "image_grid_thw": grid},
        "image_grid_thw": {"image_embeds": saved(rows)},
        "no field 'image_sizes'": {"image_embeds": saved(rows), "image_sizes": grid},
    }
