"""Makes vLLM's input of media, by vLLM's own processor of the model: runs in processes of a fork server.

An item is processed by itself, as vLLM does where its processor cache has the others of a prompt.
"""

import pickle
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import cloudpickle  # type: ignore[import-untyped]
import torch
from PIL import Image
from vllm.multimodal import MULTIMODAL_REGISTRY
from vllm.multimodal.cache import BaseMultiModalProcessorCache
from vllm.multimodal.media.image import ImageMediaIO
from vllm.multimodal.processing import ProcessorInputs, TimingContext
from vllm.tokenizers import cached_tokenizer_from_config
from vllm.v1.serial_utils import MsgpackEncoder

from tokenwire.protocol.vllm_names import json_object
from tokenwire.worker.media.fork_server import Buffers, ForkHandler
from tokenwire.worker.media.memory import bounded_memory
from tokenwire.worker.vllm_engine.errors import shown

EMBEDDINGS_MODULE = "tokenwire.worker.vllm_engine.media_embeddings"
IMAGE_EMBEDS = "image_embeds"
_LEAST_MEMORY, _BYTES_PER_PIXEL = 512 * 2**20, 32
"""What processing a picture with options of its request may take: more than the largest one takes without."""
_IN_HEADER_BYTES = 256
"""Smaller tensors are in the message, not in buffers of their own."""


@dataclass(frozen=True, slots=True)
class MediaOptions:
    """Options of a request for its media."""

    processor_kwargs: dict[str, Any]
    io_kwargs: dict[str, Any]
    """By modality."""

    @classmethod
    def of(cls, text: str) -> "MediaOptions":
        """Return the options that a coordinator has written as JSON; empty: none."""
        given = json_object(text, "mm_processor_kwargs") if text else {}
        return cls(given.get("mm_processor_kwargs") or {}, given.get("media_io_kwargs") or {})


@dataclass(frozen=True, slots=True)
class MediaJob:
    """An item to process."""

    modality: str
    data: bytes
    name: str
    """What vLLM is to know it by."""
    options: MediaOptions


@dataclass(frozen=True, slots=True)
class ProcessedMedia:
    """The answer to a job: either what vLLM makes of the item, or an error."""

    error: str = ""
    """The client's, if the item cannot be processed."""
    item_hash: str = ""
    """vLLM's name for the item with these options."""
    sizes: tuple[int, ...] = ()
    """Of the buffers of the encoded item, in shared memory."""
    prompt_updates: bytes = b""
    """How prompts get the ids of the item, pickled."""
    rows: int | None = None
    """Of embeddings; None: it is a picture."""


class TransientCache(BaseMultiModalProcessorCache):  # type: ignore[misc]
    """A cache for one call of vLLM's processor: nothing is kept."""

    def touch_sender_cache_item(self, mm_hash: str) -> None:
        """Nothing is evicted."""

    def clear_cache(self) -> None:
        """Nothing is kept."""

    def make_stats(self, *, delta: bool = False) -> Any:
        """There is nothing to count."""
        raise NotImplementedError


class ItemCapture(TransientCache):
    """Takes the item that a processor would put into its cache."""

    def __init__(self) -> None:
        super().__init__()
        self.found: tuple[str, Any, Any] | None = None
        """vLLM's name for the item, the item and its prompt updates."""

    def is_cached_item(self, mm_hash: str) -> bool:
        """Return that nothing is cached."""
        return False

    def get_and_update_item(self, mm_item: Any, mm_hash: str) -> Any:
        """Take an item."""
        self.found = mm_hash, *mm_item
        return mm_item


def load_handler(configuration: bytes) -> ForkHandler:
    """Load the processor of a pickled ModelConfig, for pictures with that many pixels at most."""
    torch.set_num_threads(1)
    config, Image.MAX_IMAGE_PIXELS = pickle.loads(configuration)  # noqa: S301  (the worker's own)
    processor = MULTIMODAL_REGISTRY.create_processor(config, tokenizer=cached_tokenizer_from_config(config))
    io_defaults = config.multimodal_config.media_io_kwargs or {}
    embeds = import_module(EMBEDDINGS_MODULE) if config.multimodal_config.enable_mm_embeds else None

    def handle(data: bytes) -> tuple[bytes, Buffers]:
        job: MediaJob = pickle.loads(data)  # noqa: S301  (the worker's own)
        if job.modality == IMAGE_EMBEDS:
            return _handle_embeddings(processor, config, embeds, job)
        return _handle(processor, io_defaults, job)

    return handle


def _handle(processor: Any, io_defaults: dict[str, Any], job: MediaJob) -> tuple[bytes, Buffers]:
    try:
        image_kwargs = {**io_defaults.get(job.modality, {}), **job.options.io_kwargs.get(job.modality, {})}
        capture = ItemCapture()
        with _bounded_options(job.options):
            with _bounded_pixels():
                item = ImageMediaIO(**image_kwargs).load_bytes(job.data)
            inputs = processor_inputs(processor, job.modality, [item], [job.name], job.options, capture)
            processor._cached_apply_hf_processor(inputs, TimingContext(enabled=False))
    except (ValueError, TypeError, OSError) as error:
        return pickle.dumps(ProcessedMedia(error=shown(error))), ()
    if capture.found is None:
        return pickle.dumps(ProcessedMedia(error="This model's processor cannot process single pictures.")), ()
    return _answer(*capture.found)


@contextmanager
def _bounded_options(options: MediaOptions) -> Iterator[None]:
    """Bound the memory for a picture with options of its request, which may enlarge it. Raises ValueError."""
    if not options.processor_kwargs and not options.io_kwargs:
        yield  # the model's own say what a picture takes
        return
    most = _LEAST_MEMORY + _BYTES_PER_PIXEL * (Image.MAX_IMAGE_PIXELS or 0)
    try:
        with bounded_memory(most):
            yield
    except Exception as error:
        if not _is_of_memory(error):
            raise
        raise ValueError(
            f"With these mm_processor_kwargs and media_io_kwargs the picture takes more than {most >> 20} MiB "
            "(--max-media-pixels)."
        ) from error


def _is_of_memory(error: BaseException | None) -> bool:
    """Return whether memory is the cause of an error: vLLM wraps all of its processors'."""
    while error is not None:
        # Torch has no error of its own for it.
        if isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and "allocate memory" in str(error)):
            return True
        error = error.__cause__ or error.__context__
    return False


@contextmanager
def _bounded_pixels() -> Iterator[None]:
    """Let Pillow refuse what has too many pixels, where it knows their number and has decoded none.

    It would warn of them, up to twice the bound. Raises ValueError.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        try:
            yield
        except (Image.DecompressionBombWarning, Image.DecompressionBombError) as error:
            size = str(error).partition(" exceeds")[0]
            raise ValueError(
                f"{size} exceeds the maximum of {Image.MAX_IMAGE_PIXELS} pixels (--max-media-pixels)."
            ) from error


def _handle_embeddings(processor: Any, config: Any, embeds: Any, job: MediaJob) -> tuple[bytes, Buffers]:
    try:
        with embeds.bounded_loading(len(job.data)):
            items = embeds.load_embeddings(processor, config, job.data)
            inputs = processor_inputs(processor, "image", items, [job.name], job.options, None)
            made = processor._apply_hf_processor(inputs, TimingContext(enabled=False))
            (features,), (updates,) = made.kwargs["image"], made.prompt_updates["image"]
            return _answer(made.hashes["image"][0], features, updates, embeds.embedding_rows(features))
    except Exception as error:  # a client's bytes can raise any, in torch, NumPy and vLLM
        return pickle.dumps(ProcessedMedia(error=f"Failed to load image_embeds: {shown(error)}")), ()


def _answer(item_hash: str, features: Any, updates: Sequence[Any], rows: int | None = None) -> tuple[bytes, Buffers]:
    buffers = [memoryview(each).cast("B") for each in MsgpackEncoder(_IN_HEADER_BYTES).encode([features])]
    sizes = tuple(each.nbytes for each in buffers)
    return pickle.dumps(ProcessedMedia("", item_hash, sizes, cloudpickle.dumps(list(updates)), rows)), buffers


def processor_inputs(
    processor: Any,
    modality: str,
    items: Any,
    names: list[str],
    options: MediaOptions,
    cache: BaseMultiModalProcessorCache | None,
    prompt: list[int] | None = None,
) -> Any:
    """Return vLLM's inputs of a processor; an item is None where the cache has it."""
    given: dict[str, Any] = {"hf_processor_mm_kwargs": options.processor_kwargs, "cache": cache}
    if options.io_kwargs:
        given["media_io_kwargs"] = options.io_kwargs
    parse: Callable[..., Any] = processor.info.parse_mm_data
    return ProcessorInputs(prompt or [], parse({modality: items}), {modality: names}, **given)
