"""Fields of pooling requests."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.coordinator.fakes import served_model
from tests.coordinator.pooling.embedding import embedding_model
from tokenwire.coordinator.api.pooling.fields import ChatFields, PoolingFields, model_of_route
from tokenwire.coordinator.auth.caller import ANYBODY, Caller
from tokenwire.coordinator.types import ServedModel
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


class Directory:
    """A directory of models that all have one name."""

    def __init__(self, *models: ServedModel) -> None:
        self._models = models

    async def resolve(self, name: str | None, caller: Caller, *, suits: Callable[[ServedModel], bool]) -> ServedModel:
        """Return the first one that suits, or else the first."""
        return next(filter(suits, self._models), self._models[0])


async def model_for_embeddings(*models: ServedModel) -> ServedModel:
    """Return the model that a request for embeddings gets."""
    directory: Any = Directory(*models)
    return await model_of_route(directory, None, ANYBODY, ("embed",), "Embeddings API")


async def test_a_model_has_the_routes_of_its_task() -> None:
    """And no others; a request that names none gets the first one that has its route."""
    embeds, classifies = embedding_model(), embedding_model(task="classify")
    assert await model_for_embeddings(served_model(), classifies, embeds) is embeds
    for model in (served_model(), classifies):
        with pytest.raises(NotFound, match="The model does not support Embeddings API: `digits` is for "):
            await model_for_embeddings(model)
