"""What a plain vLLM server pools for: found out by small requests, and read in the model's directory."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenwire.coordinator.fleet.transport.vllm_http.http_client import VllmHttpClient
from tokenwire.coordinator.fleet.transport.vllm_http.model_info import read_config
from tokenwire.coordinator.fleet.transport.vllm_http.pool_request import POOL_PATH
from tokenwire.errors import InvalidRequest, NotFound, Unavailable
from tokenwire.protocol.vllm_names import NUMBER_BYTES
from tokenwire.v1 import inference_pb2 as pb

_TASKS = ("embed", "classify", "token_embed", "token_classify")
_SENTENCE_MODELS = ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
"""Kinds for which sentence transformers have a configuration, in the order in which vLLM looks for it."""
_SCORES = {"embed": "bi-encoder", "classify": "cross-encoder", "token_embed": "late-interaction"}
_WITHOUT_SCORES, _WITH_OWN_PAIRS = "JinaForRanking", "JinaVLForRanking"
"""The architectures for which vLLM has code of its own."""


async def probe_task(server: VllmHttpClient, model: str) -> tuple[str, int] | None:
    """Return the task that the server pools for, and the width of its results; None if it does not pool.

    The server does one task alone, and rejects the others before its engine. Raises Unavailable and what the server
    responds.
    """
    reason = ""
    for task in _TASKS:
        body = {"model": model, "input": [[0]], "task": task, "encoding_format": "bytes_only"}
        try:
            result = await server.content(POOL_PATH, body)
        except NotFound:
            return None
        except InvalidRequest as error:
            reason = error.message
            continue
        return task, len(result) // NUMBER_BYTES["float32"]
    raise Unavailable(f"the server does none of the tasks {', '.join(_TASKS)}: {reason}")


def pooling_from_files(folder: Path, task: str, width: int) -> pb.PoolingModel:
    """Return what coordinators have to know of a model that pools. Raises InvalidRequest."""
    config, tokenizer = read_config(folder / "config.json"), read_config(folder / "tokenizer_config.json")
    architecture = str((config.get("architectures") or [""])[0])
    score = _SCORES.get(task, "")
    if architecture == _WITHOUT_SCORES or (score == "cross-encoder" and width != 1):
        score = ""
    is_cross_encoder = score == "cross-encoder"
    model = pb.PoolingModel(
        task=task,
        labels=_labels(config, width) if task in ("classify", "token_classify") else [],
        score=score,
        separates_texts=is_cross_encoder and bool(config.get("use_sep_token", True)),
        own_pairs=is_cross_encoder and architecture == _WITH_OWN_PAIRS,
        instructions=_instructions(config, folder),
        lower_case=_lower_case(folder),
        truncation_side=str(tokenizer.get("truncation_side") or "right"),
        width=width,
        token_types=int(config.get("type_vocab_size") or 0) > 1,
    )
    pad_token_id = _pad_token_id(config, tokenizer)
    if pad_token_id is not None:
        model.pad_token_id = pad_token_id
    return model


def _labels(config: Mapping[str, Any], width: int) -> list[str]:
    """Return the names of the classes, by default those of transformers."""
    names = config.get("id2label")
    if not isinstance(names, dict):
        return [f"LABEL_{index}" for index in range(width)]
    return [str(names.get(str(index), index)) for index in range(width)]


def _instructions(config: Mapping[str, Any], folder: Path) -> dict[str, str]:
    given = config.get("task_instructions")
    if not isinstance(given, dict) or not given:
        given = read_config(folder / "config_sentence_transformers.json").get("prompts")
    return {name: text for name, text in given.items() if isinstance(text, str)} if isinstance(given, dict) else {}


def _lower_case(folder: Path) -> bool:
    found = (read_config(folder / f"sentence_{kind}_config.json") for kind in _SENTENCE_MODELS)
    config = next((each for each in found if each), {})
    return "max_seq_length" in config and bool(config.get("do_lower_case", False))


def _pad_token_id(config: Mapping[str, Any], tokenizer: Mapping[str, Any]) -> int | None:
    """Return the id of the tokenizer's padding token; None if it has none."""
    token = tokenizer.get("pad_token")
    name = token.get("content") if isinstance(token, dict) else token
    if name is None:
        return None
    for token_id, added in (tokenizer.get("added_tokens_decoder") or {}).items():
        if added.get("content") == name:
            return int(token_id)
    known = config.get("pad_token_id")
    return known if isinstance(known, int) else None
