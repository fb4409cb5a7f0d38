"""Bodies of the derender routes."""

import pytest
from pydantic import ValidationError

from tests.coordinator.history.models import encoded, small_model
from tokenwire.coordinator.api.openai.derender_request import DerenderCompletionRequest, GivenChoice, GivenScore
from tokenwire.errors import InvalidRequest


@pytest.mark.parametrize(
    ("finish", "stop", "terminated"),
    [("stop", 5, True), ("stop", 4, False), ("stop", "a", False), ("length", 5, False), (None, 5, False)],
)
def test_the_last_token_is_no_text_if_it_ended_the_choice(finish: str, stop: int | str, terminated: bool) -> None:
    """A stop token; a stop string is found in the text."""
    choice = GivenChoice(index=0, token_ids=[3, 5], finish_reason=finish, stop_reason=stop)

    assert choice.is_terminated(small_model()) is terminated


def test_a_special_token_at_the_end_is_taken_for_its_end() -> None:
    """Of a choice that ended by itself."""
    model = small_model()
    end = min(model.tokenizer.special_token_ids)

    assert GivenChoice(index=0, token_ids=[3, end]).is_terminated(model)
    assert not GivenChoice(index=0, token_ids=[end, 3]).is_terminated(model)
    assert not GivenChoice(index=0, token_ids=[]).is_terminated(model)


def test_the_models_eos_need_not_be_special() -> None:
    """Some models' is not marked so, and others of their tokens, such as those around calls, neither."""
    model = small_model(special=False)
    (end,), (call,) = encoded(model, "<|im_end|>"), encoded(model, "</tool_call>")

    assert not model.tokenizer.special_token_ids
    assert GivenChoice(index=0, token_ids=[3, end]).is_terminated(model)
    assert not GivenChoice(index=0, token_ids=[3, call]).is_terminated(model)


def test_a_stream_has_one_prompt() -> None:
    """While whole replies have a list of them."""
    one = DerenderCompletionRequest(stream=True, prompt_tokens=3, prompt_token_ids=[1, 2])
    many = DerenderCompletionRequest(prompt_tokens=[3, 4], prompt_token_ids=[[1], None])

    assert (one.of_stream("prompt_tokens"), one.of_stream("prompt_token_ids")) == (3, [1, 2])
    assert (many.each("prompt_tokens", 2), many.each("prompt_token_ids", 2)) == ([3, 4], [[1], None])
    assert DerenderCompletionRequest().each("prompt_tokens", 2) == [None, None]
    for name in ("prompt_tokens", "prompt_token_ids"):
        with pytest.raises(InvalidRequest, match="one prompt"):
            many.of_stream(name)
        with pytest.raises(InvalidRequest, match="one entry for each response"):
            one.each(name, 2)


@pytest.mark.parametrize("score", ["Infinity", "-1e400", "NaN"])
def test_scores_are_finite(score: str) -> None:
    """JSON has no others, so a reply could not have them."""
    with pytest.raises(ValidationError, match="finite"):
        GivenScore.model_validate_json(f'{{"token_id": 1, "logprob": {score}}}')
