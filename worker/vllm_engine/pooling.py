"""What vLLM's pooling models need: parameters and results in the protocol's types, and the facts for coordinators."""

from typing import Any

from vllm import PoolingParams
from vllm.inputs import tokens_input
from vllm.transformers_utils.repo_utils import get_hf_file_to_dict
from vllm.utils.serial_utils import EMBED_DTYPES, tensor2binary

from tokenwire.errors import InvalidRequest
from tokenwire.v1 import inference_pb2 as pb
from tokenwire.worker.engine.pool_inputs import inputs_of
from tokenwire.worker.vllm_engine.driver import VllmRequest

_SCORES = {"embed": "bi-encoder", "classify": "cross-encoder", "token_embed": "late-interaction"}
"""How a model of a task scores pairs, as in vllm.tasks.SCORE_TYPE_MAP."""
_ROUTED = ("embed", "classify", "token_embed", "token_classify")
"""The tasks that coordinators serve."""


def to_vllm_params(params: pb.PoolingParams, config: Any) -> PoolingParams:
    """Build vLLM's parameters, with the defaults of a ModelConfig. Raises InvalidRequest or vLLM's own errors."""
    if params.dtype not in EMBED_DTYPES:
        raise InvalidRequest(f"Unknown type of results: {params.dtype!r}", param="embed_dtype")
    converted = PoolingParams(
        task=params.task,  # verified by vLLM
        dimensions=params.dimensions if params.HasField("dimensions") else None,
        use_activation=params.use_activation if params.HasField("use_activation") else None,
    )
    converted.verify(config)
    return converted


def to_vllm_requests(pool: pb.Pool, params: PoolingParams, inputs: dict[str, Any]) -> list[VllmRequest]:
    """Build one request for each input of a command; `inputs` are what all share. Raises InvalidRequest."""
    all_ids, seconds = inputs_of(pool), list(pool.second_begins)
    if seconds and len(seconds) != len(all_ids):
        raise InvalidRequest(f"Request {pool.request_id} has {len(seconds)} pairs for {len(all_ids)} inputs.")
    salt = pool.cache_salt if pool.HasField("cache_salt") else None
    requests = []
    for index, ids in enumerate(all_ids):
        prompt = tokens_input(ids, cache_salt=salt)
        own = params if not seconds else _of_pair(params, seconds[index])
        requests.append(VllmRequest(f"{pool.request_id}-{index}", prompt, own, inputs, {}))
    return requests


def _of_pair(params: PoolingParams, second_begins: int) -> PoolingParams:
    own = params.clone()
    own.extra_kwargs = {"compressed_token_type_ids": second_begins}
    return own


def pooled(output: Any, dtype: str) -> pb.Finish:
    """Return the terminal event of an input with its result, from an output of the engine core."""
    tensor, cached = output.pooling_output, 0
    if output.prefill_stats is not None:
        cached = output.prefill_stats.num_cached_tokens
    data = tensor2binary(tensor, dtype, "little")
    result = pb.Pooled(shape=tensor.shape, data=data, cached_tokens=cached)
    return pb.Finish(reason=pb.FINISH_REASON_STOP, pooled=result)


def pools(config: Any) -> bool:
    """Return whether the engine of a ModelConfig pools, and generates nothing."""
    return bool(config.runner_type == "pooling")


def describe_pooling(
    config: Any, supported_tasks: tuple[str, ...], tokenizer: Any
) -> tuple[list[str], pb.PoolingModel]:
    """Return the tasks of a model that pools, and what coordinators have to know of it."""
    tasks = [task for task in supported_tasks if task in _ROUTED]
    task = config.get_pooling_task(supported_tasks) or ""
    labels = _labels(config.hf_config) if {"classify", "token_classify"} & set(tasks) else []
    score = _SCORES.get(task, "")
    if score == "cross-encoder" and getattr(config.hf_config, "num_labels", 0) != 1:
        score = ""
    pooler, encoder = config.pooler_config, config.encoder_config or {}
    model = pb.PoolingModel(
        task=task,
        labels=labels,
        max_embed_len=(pooler.max_embed_len if pooler is not None else None) or 0,
        score="" if config.architecture == "JinaForRanking" else score,
        separates_texts=bool(score == "cross-encoder" and config.use_sep_token),
        own_pairs=score == "cross-encoder" and _has_own_pairs(config),
        instructions=_instructions(config),
        token_types="token_type_ids" in tokenizer.model_input_names,
        lower_case=bool(encoder.get("do_lower_case", False)),
        truncation_side=tokenizer.truncation_side,
        width=config.embedding_size if task in ("embed", "token_embed") else len(labels),
    )
    if tokenizer.pad_token_id is not None:
        model.pad_token_id = tokenizer.pad_token_id
    return tasks, model


def _labels(hf_config: Any) -> list[str]:
    """Return the names of the classes; those without one have their number."""
    names = getattr(hf_config, "id2label", None) or {}
    return [str(names.get(index, index)) for index in range(getattr(hf_config, "num_labels", 0))]


def _has_own_pairs(config: Any) -> bool:
    from vllm.model_executor.model_loader import get_model_cls
    from vllm.model_executor.models.interfaces import supports_score_template

    return bool(supports_score_template(get_model_cls(config)))


def _instructions(config: Any) -> dict[str, str]:
    """Return the prompts of Cohere's input types, as vLLM's server looks for them."""
    given = getattr(config.hf_config, "task_instructions", None)
    if not isinstance(given, dict) or not given:
        try:
            file = get_hf_file_to_dict("config_sentence_transformers.json", str(config.model), config.revision)
        except (ValueError, OSError):
            file = None
        given = (file or {}).get("prompts")
    return {name: text for name, text in given.items() if isinstance(text, str)} if isinstance(given, dict) else {}
