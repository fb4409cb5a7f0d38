"""The part of vLLM's configuration that clients may read: an allowlist, because the rest may hold secrets."""

from typing import Any

_MODEL = ("model", "dtype", "logprobs_mode", "max_model_len", "max_logprobs", "seed", "enable_sleep_mode")
_PARALLEL = ("world_size", "world_size_across_dp", "tensor_parallel_size", "pipeline_parallel_size")
_PARALLEL_DATA = ("data_parallel_size", "enable_expert_parallel")
_LORA = ("max_lora_rank", "max_loras", "max_cpu_loras", "lora_dtype", "fully_sharded_loras")


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
