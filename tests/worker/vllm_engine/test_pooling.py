"""Pooling commands in vLLM's types, results in the protocol's, and what coordinators hear of a model."""

from types import SimpleNamespace
from typing import Any

import pytest

from tests.lazily import Lazily
from tokenwire.errors import InvalidRequest
from tokenwire.v1 import inference_pb2 as pb

torch = Lazily("torch")
exceptions = Lazily("vllm.exceptions")
pooling = Lazily("tokenwire.worker.vllm_engine.pooling")

pytestmark = pytest.mark.engine


def pooling_config(**facts: Any) -> Any:
    """Return what is read of a ModelConfig, with these facts beside the usual ones."""
    known: dict[str, Any] = {
        "runner_type": "pooling",
        "pooler_config": SimpleNamespace(max_embed_len=None, tok_pooling_type="ALL"),
        "encoder_config": None,
        "architecture": "BertModel",
        "hf_config": SimpleNamespace(num_labels=3, id2label={0: "no", 2: "yes"}),
        "served_model_name": "m",
        "is_matryoshka": False,
        "embedding_size": 8,
        "use_sep_token": True,
        "model": "/nowhere",
        "revision": None,
        "get_pooling_task": lambda tasks: tasks[0],
    }
    return SimpleNamespace(**{**known, **facts})


TOKENIZER = SimpleNamespace(truncation_side="right", pad_token_id=0, model_input_names=["token_type_ids"])


def test_parameters_have_the_models_defaults() -> None:
    """And those of the request."""
    plain = pooling.to_vllm_params(pb.PoolingParams(task="embed", dtype="float32"), pooling_config())
    given = pooling.to_vllm_params(
        pb.PoolingParams(task="embed", dtype="bfloat16", use_activation=False), pooling_config()
    )

    assert (plain.task, plain.dimensions, plain.use_activation) == ("embed", None, True)
    assert given.use_activation is False


@pytest.mark.parametrize(("dimensions", "message"), [(4, "does not support Matryoshka"), (-1, "Matryoshka")])
def test_vllm_judges_dimensions(dimensions: int, message: str) -> None:
    """In its own words."""
    with pytest.raises(exceptions.VLLMValidationError, match=message):
        pooling.to_vllm_params(pb.PoolingParams(task="embed", dtype="float32", dimensions=dimensions), pooling_config())
    with pytest.raises(InvalidRequest, match="Unknown type"):
        pooling.to_vllm_params(pb.PoolingParams(task="embed", dtype="int8"), pooling_config())


def test_a_command_is_a_request_for_each_input() -> None:
    """Pairs have the position of their second text."""
    params = pooling.to_vllm_params(pb.PoolingParams(task="embed", dtype="float32"), pooling_config())
    pool = pb.Pool(request_id="r", slots=[4, 5], lengths=[2, 1], token_ids=[1, 2, 3], cache_salt="salt")
    pairs = pb.Pool(request_id="r", slots=[4], lengths=[3], token_ids=[1, 2, 3], second_begins=[2])

    first, second = pooling.to_vllm_requests(pool, params, {"priority": 1})
    (pair,) = pooling.to_vllm_requests(pairs, params, {})

    assert (first.request_id, second.request_id) == ("r-0", "r-1")
    assert (first.prompt["prompt_token_ids"], second.prompt["prompt_token_ids"]) == ([1, 2], [3])
    assert (first.prompt["cache_salt"], first.inputs) == ("salt", {"priority": 1})
    assert pair.params.extra_kwargs == {"compressed_token_type_ids": 2}
    assert params.extra_kwargs is None


@pytest.mark.parametrize(
    "pool",
    [
        pb.Pool(slots=[1, 2], lengths=[1], token_ids=[1]),
        pb.Pool(slots=[1], lengths=[2], token_ids=[1]),
        pb.Pool(slots=[1, 2], lengths=[1, 1], token_ids=[1, 2], second_begins=[1]),
    ],
)
def test_a_command_that_does_not_add_up_is_refused(pool: pb.Pool) -> None:
    """Its lengths are those of its slots and ids."""
    with pytest.raises(InvalidRequest):
        pooling.to_vllm_requests(pool, pooling.PoolingParams(task="embed"), {})


def test_results_are_bytes_of_the_requested_type() -> None:
    """With their shape, and what the cache had."""
    tensor = torch.tensor([[1.0, -2.0]])
    output = SimpleNamespace(pooling_output=tensor, prefill_stats=SimpleNamespace(num_cached_tokens=3))

    wide = pooling.pooled(output, "float32").pooled
    narrow = pooling.pooled(SimpleNamespace(pooling_output=tensor[0], prefill_stats=None), "bfloat16").pooled

    assert (list(wide.shape), wide.data, wide.cached_tokens) == ([1, 2], b"\0\0\x80\x3f\0\0\0\xc0", 3)
    assert (list(narrow.shape), narrow.data, narrow.cached_tokens) == ([2], b"\x80\x3f\0\xc0", 0)


def test_a_model_is_described_by_its_task() -> None:
    """Embeddings score by cosine; classes have names, and one class scores pairs."""
    tasks, model = pooling.describe_pooling(pooling_config(), ("embed", "token_embed", "plugin"), TOKENIZER)
    _, classes = pooling.describe_pooling(pooling_config(), ("classify", "token_classify"), TOKENIZER)

    assert tasks == ["embed", "token_embed"]
    assert (model.task, model.score, model.width, list(model.labels)) == ("embed", "bi-encoder", 8, [])
    assert (model.truncation_side, model.pad_token_id) == ("right", 0)
    assert (classes.task, classes.score, list(classes.labels)) == ("classify", "", ["no", "1", "yes"])
    assert pooling.pools(pooling_config())
    assert not pooling.pools(pooling_config(runner_type="generate"))


@pytest.mark.parametrize(
    ("hf", "found"),
    [({"task_instructions": {"query": "q: ", "other": 5}}, {"query": "q: "}), ({}, {})],
)
def test_instructions_are_those_of_the_models_files(hf: dict[str, Any], found: dict[str, str]) -> None:
    """If it has any."""
    given = pooling_config(hf_config=SimpleNamespace(**hf))

    assert dict(pooling.describe_pooling(given, ("embed",), TOKENIZER)[1].instructions) == found
