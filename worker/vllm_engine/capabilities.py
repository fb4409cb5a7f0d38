"""What a vLLM engine reports of itself: how it samples, which valid parameters would kill it, its configuration."""

import asyncio
import logging
import math
import pkgutil
from typing import Any

import torch
import vllm
from vllm import SamplingParams, envs
from vllm.sampling_params import SamplingType

from tokenwire.errors import InvalidRequest
from tokenwire.v1 import inference_pb2 as pb
from tokenwire.worker.vllm_engine.partial_prefills import PartialPrefills
from tokenwire.worker.vllm_engine.pooling import pools
from tokenwire.worker.vllm_engine.sampling import scored_ids
from tokenwire.worker.vllm_engine.unsupported import unsupported, unsupported_operations

log = logging.getLogger(__name__)

# The configuration that clients may read: an allowlist, because the rest may hold secrets.
_MODEL = ("model", "dtype", "logprobs_mode", "max_model_len", "max_logprobs", "seed", "enable_sleep_mode")
_PARALLEL = ("world_size", "world_size_across_dp", "tensor_parallel_size", "pipeline_parallel_size")
_PARALLEL_DATA = ("data_parallel_size", "enable_expert_parallel")
_LORA = ("max_lora_rank", "max_loras", "max_cpu_loras", "lora_dtype", "fully_sharded_loras")

# Before, VLLM_BATCH_INVARIANT left normalization to add in another order in steps of 256 tokens or more.
_BATCH_INVARIANT_SINCE = (0, 27)


async def engine_capabilities(llm: Any) -> pb.EngineCapabilities:
    """Return what a started AsyncLLM can do, after making seeded requests safe where possible."""
    config = llm.vllm_config
    if pools(config.model_config):
        return pb.EngineCapabilities(
            batch_invariant=is_batch_invariant(config, bool(envs.VLLM_BATCH_INVARIANT), vllm.__version_tuple__),
            unsupported=[] if config.lora_config else ["lora"],
            unsupported_operations=unsupported_operations(config),
        )
    # This runner's noise is a hash of seed and position, except with speculative decoding, where it verifies drafts.
    positional = bool(getattr(config, "use_v2_model_runner", False)) and config.speculative_config is None
    seeds = not _on_cpu(config) or await _seeds_are_safe(llm)
    scores = not _scores_may_kill(config)
    lacking = asyncio.to_thread(unsupported, config, llm.get_tokenizer(), seeds=seeds, prompt_scores=scores)
    return pb.EngineCapabilities(
        seeds=seeds,
        positional_seeds=positional,
        batch_invariant=is_batch_invariant(config, bool(envs.VLLM_BATCH_INVARIANT), vllm.__version_tuple__),
        unsupported=await lacking,
        unsupported_operations=unsupported_operations(config),
        seeded_noise=await _seeded_noise(llm, positional),
        cache_block_tokens=_cache_block_tokens(config),
    )


def _cache_block_tokens(config: Any) -> int:
    """Return of what all numbers of cached tokens are multiples: of the blocks of all layers, as started engines have
    them; 0 without a prefix cache.
    """
    cache_config = config.cache_config
    if not cache_config.enable_prefix_caching:
        return 0
    shards = getattr(config.parallel_config, "decode_context_parallel_size", 1)
    return math.lcm((cache_config.block_size or 1) * shards, getattr(cache_config, "mamba_block_size", None) or 1)


async def _seeded_noise(llm: Any, positional: bool) -> str:
    """Return a name for the noise of seeds: of what a seed draws where it comes from a generator, else of vLLM."""
    if positional:
        return "positional, vllm " + ".".join(map(str, vllm.__version_tuple__[:2]))
    if not _has_own_extension(llm):
        return ""
    drawn = set(await llm.collective_rpc("tokenwire_seeded_draw"))
    return str(drawn.pop()) if len(drawn) == 1 else ""


def is_batch_invariant(config: Any, requested: bool, version: tuple[int | str, ...]) -> bool:
    """Return whether a sequence's tokens do not depend on its batch; `requested` is VLLM_BATCH_INVARIANT."""
    if _on_cpu(config):
        return bool(config.model_config.dtype == torch.float32)
    return requested and version >= _BATCH_INVARIANT_SINCE


def check_engine_safety(params: SamplingParams, capabilities: pb.EngineCapabilities, config: Any) -> None:
    """Raise InvalidRequest for what may kill this engine: vLLM's runner for CPUs dies of some valid parameters."""
    if params.sampling_type is SamplingType.RANDOM_SEED and not capabilities.seeds:
        message = "This engine does not support seeds: they may kill vLLM on CPUs. Omit `seed`, or start the worker "
        raise InvalidRequest(f"{message}without --worker-extension-cls after `--`.", param="seed")
    vocabulary = config.model_config.get_vocab_size()
    beyond = [token for token in params.stop_token_ids or () if token >= vocabulary]
    if beyond:  # not every vLLM checks them, and they index a tensor
        message = (
            f"token_id(s) {beyond} in stop_token_ids contain out-of-vocab token ids. Vocabulary size: {vocabulary}"
        )
        raise InvalidRequest(message, param="stop_token_ids")
    scored = params.prompt_logprobs is not None or scored_ids(params) is not None
    if scored and _scores_may_kill(config):
        message = (
            "This engine does not support prompt log-probabilities: they may kill vLLM on CPUs with --enable-lora."
        )
        raise InvalidRequest(message, param="prompt_logprobs")


def _scores_may_kill(config: Any) -> bool:
    """Return whether adapters are applied to the logits of a prompt's rows as if these were the batch's sequences."""
    return config.lora_config is not None and _on_cpu(config)


def _on_cpu(config: Any) -> bool:
    return bool(config.device_config.device_type == "cpu")


async def _seeds_are_safe(llm: Any) -> bool:
    if not llm.vllm_config.scheduler_config.enable_chunked_prefill:
        return True
    if _has_own_extension(llm) and all(await llm.collective_rpc("tokenwire_keep_generators")):
        return True
    log.warning("refusing seeded requests: one with a chunked prompt would kill this engine")
    return False


def _has_own_extension(llm: Any) -> bool:
    extension = pkgutil.resolve_name(llm.vllm_config.parallel_config.worker_extension_cls)
    return issubclass(extension, PartialPrefills)


def engine_configuration(config: Any) -> dict[str, Any]:
    """Return parts of a VllmConfig as JSON values, None for those that the engine does not have."""
    return {
        "model_config": _part(config.model_config, _MODEL),
        "parallel_config": _part(config.parallel_config, (*_PARALLEL, *_PARALLEL_DATA)),
        "lora_config": _part(config.lora_config, _LORA),
        "device_config": _part(config.device_config, ("device_type",)),
        "weight_transfer_config": _part(config.weight_transfer_config, ("backend",)),
    }


def _part(config: Any, names: tuple[str, ...]) -> dict[str, Any] | None:
    return None if config is None else {name: _json(getattr(config, name, None)) for name in names}


def _json(value: Any) -> Any:
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
