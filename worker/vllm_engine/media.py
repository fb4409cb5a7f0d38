"""Media of prompts for vLLM: processed in processes of their own, kept by name, and put into prompts by vLLM's code."""

import asyncio
import inspect
import logging
import mmap
import pickle
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, fields
from importlib import import_module
from typing import Any

import cloudpickle  # type: ignore[import-untyped]
from prometheus_client.core import Metric
from vllm.multimodal.inputs import MultiModalKwargsItem
from vllm.multimodal.processing import BaseMultiModalProcessor, ProcessorInputs, TimingContext
from vllm.v1.serial_utils import MsgpackDecoder

from tokenwire.errors import InvalidRequest, MediaMissing, Unsupported
from tokenwire.peer_auth.grpc_options import MOST_TENSOR_BYTES
from tokenwire.v1 import inference_pb2 as pb
from tokenwire.worker.engine.media import EngineMedia, processing_metrics, received_metrics
from tokenwire.worker.media.kept_items import KeptItems
from tokenwire.worker.media.processor_pool import ProcessorPool
from tokenwire.worker.media.received import ReceivedMedia
from tokenwire.worker.media.shared_work import Shared, SharedWork
from tokenwire.worker.vllm_engine.errors import vllm_errors
from tokenwire.worker.vllm_engine.media_processor import (
    EMBEDDINGS_MODULE,
    IMAGE_EMBEDS,
    MediaJob,
    MediaOptions,
    ProcessedMedia,
    TransientCache,
    processor_inputs,
)

log = logging.getLogger(__name__)

_IMAGE = "image"
_MOST_PLACEHOLDERS = 64
_NO_LIMIT = 2**32 - 1
_TENSORS = "tensors"
_NO_FEATURES = "its vLLM is older than 0.32"
_Key = tuple[str, bytes, str]
"""The modality, digest and options of an item."""
_PROCESSOR_MODULE = "tokenwire.worker.vllm_engine.media_processor"


@dataclass(frozen=True, slots=True)
class _ProcessedItem:
    """A processed item."""

    item_hash: str
    features: Any
    """vLLM's MultiModalKwargsItem; its tensors lie in the shared memory."""
    prompt_updates: Sequence[Any]
    memory: mmap.mmap
    rows: int | None = None
    """Of embeddings; None: it is a picture."""


class _Entries(TransientCache):
    """The items of one prompt, as the cache of vLLM's processor."""

    def __init__(self, entries: Mapping[str, _ProcessedItem]) -> None:
        super().__init__()
        self._entries = entries

    def is_cached_item(self, mm_hash: str) -> bool:
        """Return whether an item is one of the prompt."""
        return mm_hash in self._entries

    def get_and_update_item(self, mm_item: Any, mm_hash: str) -> Any:
        """Return an item."""
        entry = self._entries[mm_hash]
        return entry.features, entry.prompt_updates


class VllmMedia(EngineMedia):
    """Pictures of prompts for a started AsyncLLM."""

    def __init__(self, llm: Any, memory_bytes: int, processes: int, max_pixels: int) -> None:
        """`memory_bytes` is for what coordinators put; processed items have vLLM's own --mm-processor-cache-gb."""
        self._processor = llm.renderer.get_mm_processor()
        self._received = ReceivedMedia(memory_bytes)
        config = llm.model_config
        self._pool = ProcessorPool(_PROCESSOR_MODULE, cloudpickle.dumps((config, max_pixels)), processes)
        self.loaded = self._pool.loaded
        """Waits until the processes can take pictures, or are known not to."""
        self._kinds = _kinds(llm)
        self._entries = KeptItems[_Key, _ProcessedItem](int(config.multimodal_config.mm_processor_cache_gb * 2**30))
        self._processing = SharedWork[_Key, _ProcessedItem]()
        self._rendering = asyncio.Lock()
        self._expanded = self._reused = 0

    def start(self) -> None:
        """Start the processes, in the background."""
        self._pool.start()

    async def stop(self) -> None:
        """End the processes."""
        self._processing.cancel()
        await self._pool.stop()

    def kinds(self) -> Sequence[pb.MediaKind]:
        """Return the kinds, with vLLM's limits."""
        return self._kinds

    async def put(self, chunks: AsyncIterator[pb.PutRequest]) -> None:
        """Store an item."""
        await self._received.receive(chunks)

    def metrics(self) -> Sequence[Metric]:
        """Return Prometheus metrics."""
        processed = processing_metrics(self._pool, self._expanded, self._reused, self._entries.used_bytes)
        return [*received_metrics(self._received), *processed]

    async def expand(self, request: pb.ExpandRequest) -> pb.ExpandResponse:
        """Return a prompt as the engine sees it."""
        reused = sum(_key(item) in self._entries for item in request.media)
        made, entries = await self._made(list(request.token_ids), request.media, tenant=request.tenant)
        spans = [pb.MediaSpan(offset=each.offset, length=each.length) for each in made["mm_placeholders"][_IMAGE]]
        response = pb.ExpandResponse(token_ids=made["prompt_token_ids"], spans=spans)
        if not request.mm_payload:
            self._expanded += len(entries)
            self._reused += reused
        else:
            if request.mm_payload == _TENSORS:
                check_tensors(sum(len(entry.memory) for entry in entries))
            async with self._rendering:  # one at a time: each copies all tensors a few times
                info = self._processor.info
                response.features_json = await asyncio.to_thread(_features_json, made, request.mm_payload, info)
        return response

    async def prompt(
        self, token_ids: list[int], media: Sequence[pb.MediaItem], end: int | None = None, tenant: str = ""
    ) -> Any:
        """Return vLLM's MultiModalInput of a prompt, of which the ids before `end` have placeholders.

        Raises InvalidRequest, MediaMissing, Overloaded or EngineFailed.
        """
        return (await self._made(token_ids, media, end, tenant))[0]

    async def _made(
        self, token_ids: list[int], media: Sequence[pb.MediaItem], end: int | None = None, tenant: str = ""
    ) -> tuple[Any, list[_ProcessedItem]]:
        """Return vLLM's input, and the item at each of its places."""
        self._check(media)
        missing = [each.digest for each in media if not self._has(each)]
        if missing:
            raise MediaMissing(missing)
        options = MediaOptions.of(media[0].options_json)
        entries = await self._processed(media, options, tenant)
        end = len(token_ids) if end is None else end
        with vllm_errors():
            cache = _Entries({entry.item_hash: entry for entry in entries})
            nothing: list[Any] = [None] * len(media)
            names = [each.digest.hex() for each in media]
            inputs = processor_inputs(self._processor, _IMAGE, nothing, names, options, cache, token_ids[:end])
            made = self._processor.apply(inputs, TimingContext(enabled=False))
        for place, entry in zip(made["mm_placeholders"][_IMAGE], entries, strict=True):
            if entry.rows is not None and place.get_num_embeds() != entry.rows:  # the engine would end
                message = f"`{IMAGE_EMBEDS}` has {entry.rows} rows, but {place.get_num_embeds()} places in the prompt."
                raise InvalidRequest(message, param=IMAGE_EMBEDS)
        made["prompt_token_ids"] = [*made["prompt_token_ids"], *token_ids[end:]]
        return made, entries

    def _check(self, media: Sequence[pb.MediaItem]) -> None:
        modalities = {each.modality for each in media}
        kind = next((each for each in self._kinds if {each.modality} == modalities), None)
        if kind is None:
            taken = " or ".join(each.modality for each in self._kinds)
            raise InvalidRequest(f"The media of a prompt must be of one kind: {taken}.", param="messages")
        if len(media) > kind.limit:
            raise InvalidRequest(f"At most {kind.limit} image(s) may be provided in one prompt.", param="messages")
        if any(each.options_json != media[0].options_json for each in media):
            raise InvalidRequest("The media of a prompt have different options.", param="mm_processor_kwargs")

    def _has(self, item: pb.MediaItem) -> bool:
        key = _key(item)
        return key in self._entries or self._processing.has_begun(key) or self._received.get(item.digest) is not None

    async def _processed(
        self, media: Sequence[pb.MediaItem], options: MediaOptions, tenant: str
    ) -> list[_ProcessedItem]:
        waiting = [asyncio.create_task(self._entry(each, options, tenant)) for each in media]
        try:
            return await asyncio.gather(*waiting)
        except MediaMissing as error:  # dropped while they waited; one more try is to suffice
            raise MediaMissing([each.digest for each in media if not self._has(each)] or error.missing) from error
        finally:
            for task in waiting:
                task.cancel()  # one has failed, or nobody waits for them any more

    async def _entry(self, item: pb.MediaItem, options: MediaOptions, tenant: str) -> _ProcessedItem:
        """Return a processed item; of those who need it at a time, one has it processed."""
        key = _key(item)
        known = self._entries.get(key)
        if known is not None:
            return known
        return await self._processing.result(key, lambda shared: self._process(item, options, tenant, shared))

    async def _process(
        self, item: pb.MediaItem, options: MediaOptions, tenant: str, shared: Shared[_ProcessedItem]
    ) -> _ProcessedItem:
        def job() -> bytes:
            data = self._received.get(item.digest)
            if data is None:
                raise MediaMissing([item.digest])
            shared.begun = True
            return pickle.dumps(MediaJob(item.modality, data, item.digest.hex(), options))

        with self._received.awaited(item.digest, tenant):
            answer, memory = await self._pool.run(job, tenant)
        processed: ProcessedMedia = pickle.loads(answer)  # noqa: S301  (a process of this worker)
        if processed.error or memory is None:
            raise InvalidRequest(processed.error or "The picture is empty.", param="messages")
        view, buffers, start = memoryview(memory), [], 0
        for size in processed.sizes:
            buffers.append(view[start : start + size])
            start += size
        (features,) = MsgpackDecoder(list[MultiModalKwargsItem]).decode(buffers)
        updates = pickle.loads(processed.prompt_updates)  # noqa: S301  (as above)
        entry = _ProcessedItem(processed.item_hash, features, updates, memory, processed.rows)
        self._entries.keep(_key(item), entry, len(memory))
        return entry


def missing_for_pictures(llm: Any) -> list[str]:
    """Return the names of what this vLLM lacks of what pictures need."""
    missing = [] if hasattr(getattr(llm, "renderer", None), "get_mm_processor") else ["renderer.get_mm_processor"]
    if not hasattr(BaseMultiModalProcessor, "_cached_apply_hf_processor"):
        missing.append("BaseMultiModalProcessor._cached_apply_hf_processor")
    taken = {each.name for each in fields(ProcessorInputs)}
    if "cache" not in taken or "media_io_kwargs" not in taken:  # before 0.31
        missing.append("ProcessorInputs.cache")
    return missing


def takes_pictures(llm: Any) -> bool:
    """Return whether a multimodal model takes pictures, of which a prompt may have one or more."""
    missing = missing_for_pictures(llm)
    if missing:
        log.warning("this vLLM lacks %s: the worker takes text only", ", ".join(missing))
        return False
    return bool(_limits(llm))


def _limits(llm: Any) -> dict[str, int]:
    """Return how many items of each kind a prompt may have."""
    limit = int(min(llm.renderer.get_mm_processor().info.allowed_mm_limits.get(_IMAGE, 0), _NO_LIMIT))
    most = {_IMAGE: limit} if limit else {}
    if llm.model_config.multimodal_config.enable_mm_embeds:
        try:
            import_module(EMBEDDINGS_MODULE)
        except ImportError as error:
            log.warning("this vLLM lacks what embeddings of pictures need (%s): the worker takes none", error)
        else:
            most[IMAGE_EMBEDS] = limit or _NO_LIMIT  # vLLM limits those of models whose encoder it leaves out to none
    return most


def _kinds(llm: Any) -> list[pb.MediaKind]:
    from vllm.model_executor.model_loader import get_model_cls

    most = _limits(llm)
    limit = max(most.values())
    model = get_model_cls(llm.model_config)
    texts = [model.get_placeholder_str(_IMAGE, number) for number in range(1, min(limit, _MOST_PLACEHOLDERS) + 1)]
    while len(texts) > 1 and texts[-1] == texts[-2]:
        texts.pop()
    return [pb.MediaKind(modality=name, limit=each, placeholders=filter(None, texts)) for name, each in most.items()]


def _key(item: pb.MediaItem) -> _Key:
    return item.modality, item.digest, item.options_json


def check_tensors(size: int) -> None:
    """Check how much the tensors of a rendered request take. Raises InvalidRequest."""
    if size > MOST_TENSOR_BYTES:
        raise InvalidRequest(
            f"The tensors of these pictures take {size} bytes; a rendered request has {MOST_TENSOR_BYTES} at most: "
            'with mm_payload "none" it has names and places alone.',
            param="mm_payload",
        )


def _features_json(made: Any, mm_payload: str, info: Any) -> bytes:
    """Return what a rendered request has of media, as vLLM's own code writes it; info: of the processor."""
    try:
        from vllm.entrypoints.scale_out.token_in_token_out.mm_features import extract_mm_features as extract
    except ImportError as error:
        raise Unsupported(_NO_FEATURES) from error
    if "mm_payload" not in inspect.signature(extract).parameters:  # before 0.32
        raise Unsupported(_NO_FEATURES)
    declared = info.data_parser.placeholder_metadata_fields
    features = extract(made, metadata_fields_for=declared, mm_payload=mm_payload)
    return bytes(features.model_dump_json(), "ascii")
