"""Loads embeddings that a request brings in the place of a picture, and checks what the model would make of them.

A tensor of another shape than the model's would end the engine: it is refused by name here, in a forked process with
bounded memory.
"""

import json
import math
from collections.abc import Mapping
from contextlib import AbstractContextManager
from io import BytesIO
from typing import Any

import numpy as np
import torch
from vllm.renderers.chat_utils import _get_embeds_data
from vllm.utils.sparse_utils import check_sparse_tensor_invariants_threadsafe, safe_to_dense

from tokenwire.worker.media.memory import bounded_memory

IMAGE_EMBEDS = "image_embeds"
_GRID = "image_grid_thw"
_NUMPY = b"\x93NUMPY"
_MOST_MEMORY = 512 * 2**20
"""What loading and processing may take beyond a few times the bytes: files can ask for any amount."""
_MOST_METADATA = 64


def load_embeddings(processor: Any, config: Any, data: bytes) -> Any:
    """Return what vLLM parses as images. Raises ValueError, or whatever loading raises."""
    tensors = _tensors(processor, data)
    if not isinstance(tensors, Mapping):
        _check_values(tensors, config)
        return _get_embeds_data("image", [tensors], processor)
    declared = set(getattr(processor.info.data_parser, "embedding_fields", {}).get("image", ()))
    if unknown := [name for name in tensors if name not in declared]:
        takes = f"it takes {', '.join(sorted(declared))}" if declared else "it takes one tensor"
        raise ValueError(f"`{IMAGE_EMBEDS}` of this model have no field {unknown[0]!r}: {takes}.")
    for name, tensor in tensors.items():
        if name == IMAGE_EMBEDS:
            _check_values(tensor, config, may_be_batch=False)
        elif isinstance(tensor, torch.Tensor) and (tensor.numel() > _MOST_METADATA or tensor.is_floating_point()):
            raise ValueError(f"`{IMAGE_EMBEDS}.{name}` must be a few integers, not {_what(tensor)}.")
    merged = _get_embeds_data("image", [tensors], processor)
    if _GRID in merged:
        _check_grid(merged[_GRID], tensors.get(IMAGE_EMBEDS), config)
    return merged


def embedding_rows(item: Any) -> int:
    """Return how many embeddings a processed item has. Raises ValueError if that cannot be told."""
    data = item[IMAGE_EMBEDS].data if IMAGE_EMBEDS in item else None
    if not isinstance(data, torch.Tensor):
        raise ValueError("those of this model cannot be checked")
    return math.prod(data.shape[:-1])


def bounded_loading(size: int) -> AbstractContextManager[None]:
    """Let this process take so much more memory for input of a size: more is an error."""
    return bounded_memory(_MOST_MEMORY + 8 * size)


def _tensors(processor: Any, data: bytes) -> Any:
    """Return the tensor of a file; or by name, of what a coordinator puts together of several."""
    if not data.startswith(b"{"):
        return _load(data)
    head, _, rest = data.partition(b"\n")
    found: dict[str, Any] = {}
    for name, value in json.loads(head).items():
        if isinstance(value, int):
            found[name], rest = _load(rest[:value]), rest[value:]
        else:
            found[name] = value
    return found


def _load(data: bytes) -> torch.Tensor:
    """Return the tensor of a file, as vLLM's ImageEmbeddingMediaIO does, but for a device that this process lacks."""
    if data.startswith(_NUMPY):
        return torch.from_numpy(np.load(BytesIO(data), allow_pickle=False))
    with check_sparse_tensor_invariants_threadsafe():
        tensor = torch.load(BytesIO(data), weights_only=True, map_location="cpu")
        dense = safe_to_dense(tensor, parameter=IMAGE_EMBEDS)
    if dense.device.type != "cpu":
        raise ValueError(f"`{IMAGE_EMBEDS}` has a tensor without values.")
    return dense.contiguous()


def _check_values(tensor: Any, config: Any, may_be_batch: bool = True) -> None:
    """Check a tensor of embeddings, if it may be with a first dimension for one picture. Raises ValueError."""
    if not isinstance(tensor, torch.Tensor) or not tensor.is_floating_point():
        raise ValueError(f"`{IMAGE_EMBEDS}` must be a tensor of floating-point numbers, not {_what(tensor)}.")
    width = _width(config)
    is_batch = may_be_batch and tensor.ndim == 3 and len(tensor) == 1
    if not (tensor.ndim == 2 or is_batch) or 0 in tensor.shape:
        raise ValueError(f"`{IMAGE_EMBEDS}` must have 2 dimensions (tokens, {width}), not {_what(tensor)}.")
    if tensor.shape[-1] != width:
        raise ValueError(
            f"`{IMAGE_EMBEDS}` has rows of {tensor.shape[-1]} numbers, but the model takes {width}: "
            f"it is {_what(tensor)}."
        )
    if not bool(torch.isfinite(tensor.to(config.dtype)).all()):
        raise ValueError(f"`{IMAGE_EMBEDS}` has numbers that are not finite in {config.dtype}.")


def _check_grid(grid: Any, embeddings: Any, config: Any) -> None:
    """Check that a picture's grid of patches is one, and has as many places as there are embeddings."""
    numbers = grid.flatten().tolist()
    side = int(getattr(config.hf_config.vision_config, "spatial_merge_size", 1))
    if (
        len(numbers) != 3
        or any(type(each) is not int or each < 1 for each in numbers)
        or numbers[0] != 1
        or numbers[1] % side
        or numbers[2] % side
    ):
        raise ValueError(
            f"`{IMAGE_EMBEDS}.{_GRID}` must be 3 positive integers, 1 and two multiples of {side}, not {numbers}."
        )
    places, rows = math.prod(numbers) // side**2, math.prod(embeddings.shape[:-1]) if embeddings is not None else 0
    if places != rows:
        raise ValueError(f"`{IMAGE_EMBEDS}` has {rows} rows, but its {_GRID} {numbers} has {places} places for them.")


def _width(config: Any) -> int:
    """Return how many numbers the model takes for a token of a picture."""
    vision = getattr(config.hf_config, "vision_config", None)
    # Models with outputs of several layers take these one behind the other.
    levels = getattr(vision, "deepstack_visual_indexes", None) or ()
    return int(config.get_inputs_embeds_size()) * (1 + len(levels))


def _what(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"one of {value.dtype} with the shape {tuple(value.shape)}"
    return type(value).__name__
