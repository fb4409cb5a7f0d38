"""What of requests and operations an engine cannot serve, as its vLLM is built and configured: coordinators obey it."""

import json
import logging
from typing import Any

from vllm.exceptions import VLLMValidationError
from vllm.v1.engine.async_llm import AsyncLLM

from tokenwire.errors import InvalidRequest
from tokenwire.v1 import inference_pb2 as pb
from tokenwire.worker.vllm_engine.sampling import to_vllm, unsupported_params

log = logging.getLogger(__name__)

_REFUSALS = (InvalidRequest, VLLMValidationError, ValueError, NotImplementedError, ImportError)
_TAG = {"type": "structural_tag", "format": {"type": "json_schema", "json_schema": {"type": "object"}}}
_PROBES = {
    "structured_outputs.json_schema": pb.SamplingParams(
        structured_outputs=pb.StructuredOutputs(json_schema='{"type": "object"}')
    ),
    "structured_outputs.regex": pb.SamplingParams(structured_outputs=pb.StructuredOutputs(regex="a")),
    "structured_outputs.choice": pb.SamplingParams(
        structured_outputs=pb.StructuredOutputs(choice=pb.Choices(values=["a"]))
    ),
    "structured_outputs.grammar": pb.SamplingParams(structured_outputs=pb.StructuredOutputs(grammar='root ::= "a"')),
    "structured_outputs.json_object": pb.SamplingParams(structured_outputs=pb.StructuredOutputs(json_object=True)),
    "structured_outputs.structural_tag": pb.SamplingParams(
        structured_outputs=pb.StructuredOutputs(structural_tag=json.dumps(_TAG))
    ),
    "min_p": pb.SamplingParams(temperature=1.0, min_p=0.1),
    "logit_bias": pb.SamplingParams(logit_bias={1: 1.0}),
}
"""Requests that backends of grammars and speculative decoding do not all serve: vLLM itself is asked."""


def unsupported(config: Any, tokenizer: Any, *, seeds: bool, prompt_scores: bool) -> list[str]:
    """Return what requests cannot have, by the protocol's names; takes a moment.

    `seeds`: whether seeded requests are safe; `prompt_scores`: whether log-probabilities of prompts are.
    """
    found = {
        *unsupported_params(),
        *(name for name, probe in _PROBES.items() if not _accepts(config, tokenizer, probe)),
    }
    if not seeds:
        found.add("seed")
    if not prompt_scores:
        found |= {"prompt_logprobs", "prompt_logprob_token_ids"}
    if config.lora_config is None:
        found.add("lora")
    if config.kv_transfer_config is None:
        found.add("kv_transfer_params")
    return sorted(found)


def unsupported_operations(config: Any) -> list[str]:
    """Return which calls of Control the engine cannot serve."""
    found = []
    if not config.model_config.enable_sleep_mode:
        found.append("sleep")
    if config.weight_transfer_config is None:
        found.append("weight_transfer")
    if not hasattr(AsyncLLM, "shutdown_weight_transfer_engine"):
        found.append("weight_transfer.shutdown")
    return found


def _accepts(config: Any, tokenizer: Any, probe: pb.SamplingParams) -> bool:
    """Return whether vLLM verifies a request; what is not a refusal says nothing about it."""
    try:
        params = to_vllm(probe, 1)
        params.verify(config.model_config, config.speculative_config, config.structured_outputs_config, tokenizer)
    except _REFUSALS:
        return False
    except Exception:
        log.warning("vLLM cannot be asked whether it serves %s", probe, exc_info=True)
    return True
