"""Bodies of TRL's own server, up to version 1.10, become requests."""

import pytest

from tokenwire.coordinator.api.api_request import InvalidBody
from tokenwire.coordinator.api.tokens.trl_request import TrlChat, TrlGenerate, TrlSequenceLogprobs
from tokenwire.coordinator.types import ChatPrompt, TextPrompt, TokenPrompt
from tokenwire.errors import InvalidRequest


def test_prompts_are_texts_or_ids() -> None:
    """A list of either."""
    assert TrlGenerate(prompts=["a", "b"]).to_prompts() == [TextPrompt("a"), TextPrompt("b")]
    assert TrlGenerate(prompts=[[1], [2]]).to_prompts() == [TokenPrompt([1], "prompts"), TokenPrompt([2], "prompts")]


def test_conversations_share_template_and_tools() -> None:
    """Each becomes a prompt of its own."""
    first, second = TrlChat(
        messages=[[{"role": "user"}], [{"role": "tool"}]], chat_template_kwargs={"enable_thinking": False}
    ).to_prompts()

    assert isinstance(first, ChatPrompt)
    assert isinstance(second, ChatPrompt)
    assert first.options == second.options
    assert first.options.kwargs == {"enable_thinking": False}


def test_generation_kwargs_take_precedence() -> None:
    """They are vLLM's parameters and override the named ones; the regex overrides them."""
    body = TrlGenerate(
        prompts=["a"],
        temperature=0.3,
        structured_outputs_regex="a+",
        generation_kwargs={"temperature": 0.7, "seed": 2**62, "structured_outputs": {"regex": "b+"}},
    )

    sampling = body.sampling_params().to_wire()

    assert (sampling.temperature, sampling.seed, sampling.max_tokens, sampling.logprobs) == (0.7, 2**62, 16, 0)
    assert sampling.structured_outputs.regex == "a+"


def test_wrong_generation_kwargs_are_named() -> None:
    """As fields of generation_kwargs."""
    with pytest.raises(InvalidBody) as caught:
        TrlGenerate(prompts=["a"], generation_kwargs={"seed": "x"}).sampling_params()

    assert caught.value.problems[0]["loc"] == ("body", "generation_kwargs", "seed")


def test_images_are_rejected() -> None:
    """But null for every prompt is not."""
    assert TrlGenerate(prompts=["a"], images=[None]).to_prompts()
    with pytest.raises(InvalidRequest, match="images"):
        TrlGenerate(prompts=["a"], images=[["aGk="]]).to_prompts()


@pytest.mark.parametrize("lengths", [[], [1, 2], [4]])
def test_sequences_need_their_prompt_lengths(lengths: list[int]) -> None:
    """One each, within the sequence."""
    with pytest.raises(InvalidRequest) as caught:
        TrlSequenceLogprobs(sequences=[[1, 2, 3]], prompt_lengths=lengths).to_generation("x")

    assert caught.value.param == "prompt_lengths"


def test_scoring_requests_one_token_and_prompt_logprobs() -> None:
    """The temperature is that of the processed log-probabilities."""
    sampling = (
        TrlSequenceLogprobs(sequences=[[1]], prompt_lengths=[1], temperature=0.5, top_logprobs=3)
        .to_generation("x")
        .sampling
    )

    assert (sampling.max_tokens, sampling.temperature, sampling.prompt_logprobs) == (1, 0.5, 3)
