"""Fields of pooling requests."""

import pytest

from tests.coordinator.fakes import served_model
from tests.coordinator.pooling.embedding import embedding_model
from tokenwire.coordinator.api.pooling.fields import ChatFields, PoolingFields, check_route
from tokenwire.errors import InvalidRequest, NotFound
from tokenwire.v1 import inference_pb2 as pb


def test_inputs_are_cut_on_the_side_of_the_models_tokenizer() -> None:
    """Unless the request names one."""
    fields = PoolingFields(truncate_prompt_tokens=5)
    sides = []
    for side in ("left", "right"):
        truncation = fields.truncation(embedding_model(truncation_side=side))
        assert truncation is not None
        sides.append((truncation.length, truncation.side, truncation.tokenizer_side))

    assert sides == [(5, None, "left"), (5, None, "right")]
    assert PoolingFields().truncation(embedding_model()) is None


def test_parameters_that_are_not_given_are_absent() -> None:
    """The engine has defaults of its own."""
    assert PoolingFields().pooling_params("embed") == pb.PoolingParams(task="embed", dtype="float32")
    given = PoolingFields(use_activation=False).pooling_params("embed", -3, "float16")
    assert given == pb.PoolingParams(task="embed", use_activation=False, dimensions=-3, dtype="float16")


def test_a_chat_is_rendered_without_the_beginning_of_a_reply() -> None:
    """Unless the request wants it."""
    prompt = ChatFields().chat_prompt([{"role": "user", "content": "x"}])

    assert not prompt.options.add_generation_prompt
    with pytest.raises(InvalidRequest, match="Cannot set both"):
        ChatFields(add_generation_prompt=True, continue_final_message=True).chat_prompt([])


def test_a_model_has_the_routes_of_its_task() -> None:
    """And no others."""
    check_route(embedding_model(), ("embed",), "Embeddings API")
    for model in (served_model(), embedding_model(task="classify")):
        with pytest.raises(NotFound, match="The model does not support Embeddings API: `digits` is for "):
            check_route(model, ("embed",), "Embeddings API")
