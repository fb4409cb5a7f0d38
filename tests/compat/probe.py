"""Prints what the vLLM of this environment can do, as JSON; runs in each minor's environment, without an engine."""

import json
from typing import Any, get_args


def capabilities() -> dict[str, Any]:
    """Return capabilities by name."""
    import vllm
    from vllm import envs
    from vllm.config.structured_outputs import StructuredOutputsBackend
    from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
    from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory
    from vllm.lora.request import LoRARequest
    from vllm.platforms import current_platform
    from vllm.reasoning import ReasoningParserManager
    from vllm.tool_parsers import ToolParserManager
    from vllm.v1.engine import EngineCoreOutput, EngineCoreOutputs
    from vllm.v1.engine.async_llm import AsyncLLM
    from vllm.v1.outputs import LogprobsLists
    from vllm.v1.sample.ops.topk_topp_sampler import TopKTopPSampler

    from tokenwire.worker.vllm_engine.capabilities import is_batch_invariant
    from tokenwire.worker.vllm_engine.sampling import unsupported_params
    from tokenwire.worker.vllm_engine.seeded_rows import uses_generators

    current_platform.import_kernels()
    on_gpu = _Config("cuda")
    return {
        "unsupported_sampling_params": unsupported_params(),
        "logprob_columns": list(LogprobsLists._fields),
        "prompt_scores": "prompt_token_id_logprobs" in EngineCoreOutput.__struct_fields__,
        "seeded_draw": _seeded_draw(TopKTopPSampler()),
        "seeds_in_mixed_batches": uses_generators(TopKTopPSampler().forward_cpu),
        "batch_invariant_on_gpus": "VLLM_BATCH_INVARIANT" in envs.environment_variables
        and is_batch_invariant(on_gpu, True, vllm.__version_tuple__),
        "structured_output_backends": [name for name in get_args(StructuredOutputsBackend) if name != "auto"],
        "lora": "lora_path" in LoRARequest.__struct_fields__,
        "weight_transfer": sorted(WeightTransferEngineFactory._registry),
        "weight_transfer_shutdown": hasattr(AsyncLLM, "shutdown_weight_transfer_engine"),
        "weight_version_in_steps": "weight_version" in EngineCoreOutputs.__struct_fields__,
        "kv_connectors": sorted(KVConnectorFactory._registry),
        "tool_parsers": sorted(set(ToolParserManager.list_registered())),
        "reasoning_parsers": sorted(set(ReasoningParserManager.list_registered())),
    }


def _seeded_draw(sampler: Any) -> int:
    """Return the first id that a seed draws of 4,096 equally likely ones, on a CPU."""
    import torch

    generator = torch.Generator().manual_seed(7)
    return int(sampler.forward_cpu(torch.zeros(1, 4096), {0: generator}, None, None)[0][0])


class _Config:
    """Stands for the configuration of an engine on a device."""

    def __init__(self, device_type: str) -> None:
        self.device_config = self
        self.device_type = device_type


if __name__ == "__main__":
    print(json.dumps(capabilities()))
