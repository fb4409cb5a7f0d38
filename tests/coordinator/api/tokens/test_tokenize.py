"""POST /tokenize and /detokenize."""

from pathlib import Path
from typing import Any

import pytest

from tests.coordinator.api.applications import served
from tokenwire.coordinator.api.api_request import RequestHeaders
from tokenwire.coordinator.api.tokens.tokenize import TokenizeRequest
from tokenwire.coordinator.output.settings import ApiSettings
from tokenwire.coordinator.types import ChatPrompt, TextPrompt
from tokenwire.errors import InvalidRequest

MESSAGES = [{"role": "user", "content": "Hi"}]


def prompt_of(headers: dict[str, str] | None = None, **body: Any) -> ChatPrompt | TextPrompt:
    """Return the prompt of a request."""
    return TokenizeRequest.model_validate(body).to_prompt(ApiSettings(), RequestHeaders(headers or {}))


@pytest.mark.parametrize(
    ("body", "special"),
    [({"prompt": "a"}, True), ({"prompt": "a", "add_special_tokens": False}, False), ({"messages": MESSAGES}, False)],
)
def test_special_tokens_are_added_to_text_alone(body: dict[str, Any], special: bool) -> None:
    """Templates add them to messages."""
    assert prompt_of(**body).add_special_tokens is special


@pytest.mark.parametrize("body", [{}, {"prompt": "a", "messages": MESSAGES}])
def test_exactly_one_form_of_prompt_is_required(body: dict[str, Any]) -> None:
    """Neither both nor none."""
    with pytest.raises(InvalidRequest, match="Either `prompt` or `messages`"):
        prompt_of(**body)


def test_a_continued_message_has_no_generation_prompt() -> None:
    """Both at once contradict each other."""
    with pytest.raises(InvalidRequest, match="continue_final_message"):
        prompt_of(messages=MESSAGES, continue_final_message=True)


def test_messages_use_stored_history_and_store_nothing() -> None:
    """Like a chat of the same conversation."""
    prompt = prompt_of({"x-session-id": "c"}, messages=MESSAGES)

    assert isinstance(prompt, ChatPrompt)
    assert prompt.history is not None
    assert (prompt.history.conversation_id, prompt.history.keeps) == ("c", False)


async def test_text_becomes_ids_and_text_again(tmp_path: Path) -> None:
    """With the tokens' own strings on request; ids outside of the vocabulary are rejected."""
    async with served(tmp_path) as client:
        made = (await client.post("/tokenize", json={"prompt": "Hi", "return_token_strs": True})).json()
        back = (await client.post("/detokenize", json={"tokens": made["tokens"]})).json()
        rejected = await client.post("/detokenize", json={"tokens": [10**9]})

    assert (made["count"], made["tokens"], len(made["token_strs"])) == (2, [72, 105], 2)
    assert made["max_model_len"] > 0
    assert back == {"prompt": "Hi"}
    assert (rejected.status_code, rejected.json()["error"]["param"]) == (400, "tokens")
