"""Chats whose prompts are ids."""

import logging
from typing import Any

import pytest
from pydantic import ValidationError

from tests.coordinator.api.replies import ScriptedPlan
from tests.coordinator.fakes import ids, served_model
from tokenwire.coordinator.api.api_request import RequestHeaders
from tokenwire.coordinator.api.tokens.chat_tokens import ChatTokensRequest, RenderingCheck
from tokenwire.coordinator.output.settings import ApiSettings
from tokenwire.coordinator.types import TokenPrompt

MESSAGES = [{"role": "user", "content": "one two"}]


def tokens_request(tokens: list[int], messages: Any = None, **body: Any) -> ChatTokensRequest:
    """Return a request."""
    return ChatTokensRequest.model_validate({"messages": messages or MESSAGES, "tokens": tokens, **body})


@pytest.fixture
def rendering() -> RenderingCheck:
    """A new check."""
    return RenderingCheck(ApiSettings())


@pytest.mark.parametrize("plan", [None, ScriptedPlan([], prompt_token_ids=[9])])
def test_the_ids_are_the_prompt(plan: ScriptedPlan | None) -> None:
    """Whatever the messages or a parser contain; everything else is the chat's."""
    made = tokens_request([5, 6], max_completion_tokens=7, logprobs=True).to_generation(
        "x", RequestHeaders({}), plan, ApiSettings()
    )

    assert made.prompts == [TokenPrompt([5, 6], "tokens")]
    assert (made.sampling.max_tokens, made.sampling.logprobs) == (7, 0)


@pytest.mark.parametrize("body", [{}, {"tokens": []}, {"tokens": None}])
def test_the_ids_are_required(body: dict[str, Any]) -> None:
    """Without them it is another route's request."""
    with pytest.raises(ValidationError, match="tokens"):
        ChatTokensRequest.model_validate({"messages": MESSAGES, **body})


@pytest.mark.parametrize(
    ("tokens", "mismatches"), [(ids("one two"), 0), (ids("one three"), 1), (ids("one two two"), 1), (ids("one"), 1)]
)
async def test_prompts_that_differ_are_counted(rendering: RenderingCheck, tokens: list[int], mismatches: int) -> None:
    """Prompts that differ from their rendered messages count once per request."""
    await rendering.compare(tokens_request(list(tokens)), served_model())

    assert (rendering.prompts, rendering.mismatches) == (1, mismatches)


async def test_a_mismatch_is_logged_at_debug_level(rendering: RenderingCheck, caplog: pytest.LogCaptureFixture) -> None:
    """With its position and without the text of the conversation."""
    with caplog.at_level(logging.DEBUG):
        await rendering.compare(tokens_request(ids("one three")), served_model())  # type: ignore[arg-type]

    (record,) = caplog.records
    assert record.levelno == logging.DEBUG
    assert "from token 1 on" in record.getMessage()


async def test_messages_that_cannot_be_rendered_differ(rendering: RenderingCheck) -> None:
    """The request continues with its ids."""
    await rendering.compare(
        tokens_request([1], messages=[{"role": "user", "content": [{"type": "image_url"}]}]), served_model()
    )

    assert rendering.mismatches == 1
