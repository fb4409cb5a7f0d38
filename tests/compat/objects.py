"""Which variables of the adapters hold vLLM's objects, and of which class: their sources alone do not say so.

Names are the last ones: `stats` of `stats.events` and of `request.stats.events`, `get_tokenizer()` of what a call
returns, `spans[]` of what is taken out of one. `file.name` is a name in one file of the adapters, or in a function, and
comes before the name alone.
"""

from tests.compat.sources import VllmClass

_ENGINE, _RUNNER = "vllm.v1.engine", "vllm.v1.worker.gpu_model_runner"
_LLM = VllmClass("vllm.v1.engine.async_llm", "AsyncLLM")
_OUTPUT = VllmClass(_ENGINE, "EngineCoreOutput")
_OUTPUTS = VllmClass(_ENGINE, "EngineCoreOutputs")
_CONFIG = VllmClass("vllm.config.vllm", "VllmConfig")
_ENGINE_ARGS = VllmClass("vllm.engine.arg_utils", "AsyncEngineArgs")
_MODEL = VllmClass("vllm.config.model", "ModelConfig")
_MM_PROCESSOR = VllmClass("vllm.multimodal.processing", "BaseMultiModalProcessor")
_MM_INFO = VllmClass("vllm.multimodal.processing", "BaseProcessingInfo")
_PARAMS = VllmClass("vllm.sampling_params", "SamplingParams")
_POOLING = VllmClass("vllm.pooling_params", "PoolingParams")
_PREFILL = VllmClass("vllm.v1.metrics.stats", "PrefillStats")
_REQUEST = VllmClass(_ENGINE, "EngineCoreRequest")
_TIMES = VllmClass("vllm.v1.metrics.stats", "RequestStateStats")
_LOGGERS = VllmClass("vllm.v1.metrics.loggers", "StatLoggerManager")
_ITERATION = VllmClass("vllm.v1.metrics.stats", "IterationStats")
_WORKER = VllmClass("vllm.v1.worker.gpu_worker", "Worker")

OBJECTS: dict[str, VllmClass] = {
    "llm": _LLM,
    "_llm": _LLM,
    "_core": VllmClass("vllm.v1.engine.core_client", "AsyncMPClient"),
    "_processor": VllmClass("vllm.v1.engine.input_processor", "InputProcessor"),
    "output_processor": VllmClass("vllm.v1.engine.output_processor", "OutputProcessor"),
    "vllm_config": _CONFIG,
    "capabilities.config": _CONFIG,
    "grammars._config": _CONFIG,
    "grammars.config": _CONFIG,
    "unsupported.config": _CONFIG,
    "weights.config": _CONFIG,
    "model_config": _MODEL,
    "engine.config": _MODEL,
    "media.config": _MODEL,
    "media_processor.config": _MODEL,
    "media_embeddings.config": _MODEL,
    "pooling.config": _MODEL,
    "weights.model": _MODEL,
    "multimodal_config": VllmClass("vllm.config.multimodal", "MultiModalConfig"),
    "pooling.pooler": VllmClass("vllm.config.pooler", "PoolerConfig"),
    "weights.load": VllmClass("vllm.config.load", "LoadConfig"),
    "scheduler_config": VllmClass("vllm.config.scheduler", "SchedulerConfig"),
    "limits": VllmClass("vllm.config.scheduler", "SchedulerConfig"),
    "parallel_config": VllmClass("vllm.config.parallel", "ParallelConfig"),
    "warm_up.parallel": VllmClass("vllm.config.parallel", "ParallelConfig"),
    "cache_config": VllmClass("vllm.config.cache", "CacheConfig"),
    "device_config": VllmClass("vllm.config.device", "DeviceConfig"),
    "structured_outputs_config": VllmClass("vllm.config.structured_outputs", "StructuredOutputsConfig"),
    "parsed": _ENGINE_ARGS,
    # Requests.
    "params": _PARAMS,
    "verified": _PARAMS,
    "sampling.child": _PARAMS,
    "pooling.params": _POOLING,
    "pool.params": _POOLING,
    "pooling.converted": _POOLING,
    "pooling.own": _POOLING,
    "core_driver.child": _REQUEST,
    "core_driver.request": _REQUEST,
    "pooling_driver.child": _REQUEST,
    "pooling_driver.each": _REQUEST,
    "statistics.request": _REQUEST,
    "lora_request": VllmClass("vllm.lora.request", "LoRARequest"),
    "grammars.outputs": VllmClass("vllm.sampling_params", "StructuredOutputsParams"),
    "grammars.backend": VllmClass("vllm.v1.structured_output.backend_types", "StructuredOutputBackend"),
    "grammars.grammar": VllmClass("vllm.v1.structured_output.backend_types", "StructuredOutputGrammar"),
    # Pictures.
    "renderer": VllmClass("vllm.renderers.base", "BaseRenderer"),
    "MULTIMODAL_REGISTRY": VllmClass("vllm.multimodal.registry", "MultiModalRegistry"),
    "media._processor": _MM_PROCESSOR,
    "media_processor.processor": _MM_PROCESSOR,
    "get_mm_processor()": _MM_PROCESSOR,
    "media.info": _MM_INFO,
    "media_processor.info": _MM_INFO,
    "media.model": VllmClass("vllm.model_executor.models.interfaces", "SupportsMultiModal"),
    "media.place": VllmClass("vllm.multimodal.inputs", "PlaceholderRange"),
    "media_processor.made": VllmClass("vllm.multimodal.processing.processor", "MultiModalProcessingResult"),
    "expand.each": VllmClass("vllm.multimodal.inputs", "PlaceholderRange"),
    "ImageMediaIO()": VllmClass("vllm.multimodal.media.image", "ImageMediaIO"),
    "MsgpackDecoder()": VllmClass("vllm.v1.serial_utils", "MsgpackDecoder"),
    "MsgpackEncoder()": VllmClass("vllm.v1.serial_utils", "MsgpackEncoder"),
    # Steps.
    "outputs": _OUTPUTS,
    "output": _OUTPUT,
    "prefill_stats": _PREFILL,
    "core_driver.stats": VllmClass("vllm.v1.metrics.stats", "SchedulerStats"),
    "statistics.stats": _TIMES,
    "statistics.manager": _LOGGERS,
    "logger_manager": _LOGGERS,
    "iteration": _ITERATION,
    "statistics._loras": VllmClass("vllm.v1.metrics.stats", "LoRARequestStates"),
    "sampled_rows.logprobs": VllmClass("vllm.v1.outputs", "LogprobsLists"),
    "prompt_rows.logprobs": VllmClass("vllm.v1.outputs", "LogprobsTensors"),
    "flat_rows.logprobs": VllmClass("vllm.logprobs", "FlatLogprobs"),
    "generate_driver.output": VllmClass("vllm.outputs", "RequestOutput"),
    "completion": VllmClass("vllm.outputs", "CompletionOutput"),
    "weight_versions[]": VllmClass("vllm.outputs", "WeightVersionSpan"),
    # Processes of the engine.
    "worker": _WORKER,
    "model_runner": VllmClass(_RUNNER, "GPUModelRunner"),
    "runner": VllmClass(_RUNNER, "GPUModelRunner"),
    "discard_request_mask": VllmClass("vllm.v1.utils", "CpuGpuBuffer"),
    "input_batch": VllmClass("vllm.v1.worker.gpu_input_batch", "InputBatch"),
    "partial_prefills.sampler": VllmClass("vllm.v1.sample.sampler", "Sampler"),
    "seeded_rows.sampler": VllmClass("vllm.v1.sample.ops.topk_topp_sampler", "TopKTopPSampler"),
    "tokenwire_communicator": VllmClass("vllm.distributed.device_communicators.pynccl", "PyNcclCommunicator"),
    "group": VllmClass("vllm.distributed.utils", "StatelessProcessGroup"),
    "get_world_group()": VllmClass("vllm.distributed.parallel_state", "GroupCoordinator"),
    # The cache.
    "batch": VllmClass("vllm.distributed.kv_events", "KVEventBatch"),
    "kv_events.event": VllmClass("vllm.distributed.kv_events", "BlockStored"),
}
"""vLLM's."""

ARGUMENTS: dict[str, tuple[VllmClass, str]] = {
    "inputs": (OBJECTS["_processor"], "process_inputs"),
    "reasoning": (_REQUEST, ""),
    "processor_inputs.given": (VllmClass("vllm.multimodal.processing", "ProcessorInputs"), ""),
    "load_weights.arguments": (OBJECTS["model_runner"], "reload_weights"),
}
"""Dictionaries that collect arguments, and the method that gets them; without one they are fields."""

STAND_INS = {"statistics._Request": (OBJECTS["output_processor"], "do_tracing", 1)}
"""Classes of ours whose objects vLLM gets for one of its own: the method, and which of its parameters."""

NOT_VLLMS = frozenset(
    {
        *("arguments.parser", "warm_up.handler", "grammars.kind", "partial_prefills.generators"),  # Python's
        *("media.cloudpickle", "media_processor.cloudpickle", "media.features"),
        *("grammars.mask", "logprobs.token_ids", "logprobs.ranks", "logprobs.values"),  # torch's and numpy's
        *("named_params.torch", "seeded_rows.torch", "grammar_process.compiler"),
        *("media_processor.torch", "pooling.tensor", "media_processor.embeds"),
        *(f"media_embeddings.{name}" for name in ("torch", "dense", "data", "tensor", "grid", "value")),
        *("embedded_model.tokenizer", "embedded_model.model", "embedded_model.logging", "tokenizer.tokenizer"),
        "pooling.tokenizer",
        *("embedded_model.AutoTokenizer", "embedded_model.AutoModelForCausalLM"),  # transformers'
    }
)
"""Objects without types that are not of vLLM's classes."""

OURS = frozenset(
    {
        *(f"EngineCoreRequest: {name}" for name in ("cached_tokens", "lora_name", "max_tokens_param")),
        *(f"EngineCoreRequest: {name}" for name in ("prompt_tokens", "stats")),
        *(f"PoolingParams: {name}" for name in ("HasField", "dtype")),
        *(f"SamplingParams: {name}" for name in ("HasField", "extra_args_json")),
        *(f"SamplingParams: {name}_transfer_params_json" for name in ("ec", "kv")),
        "StructuredOutputGrammar: ll_matcher",  # of guidance's alone
    }
)
"""Attributes of objects of ours that have the same names as vLLM's: its classes lack them."""
