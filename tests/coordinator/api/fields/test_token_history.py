"""Fields of token-exact history in requests and replies."""

from typing import Any, Literal

import pytest

from tests.coordinator.fakes import served_model
from tokenwire.coordinator.api.fields.token_history import (
    TokenHistoryFields,
    shown_history,
    shown_message_ids,
    without_ids,
)
from tokenwire.coordinator.generation.prompts import PreparedPrompt
from tokenwire.coordinator.generation.service import PreparedRequest
from tokenwire.coordinator.text.logprobs import ScoredPosition, ScoredToken
from tokenwire.coordinator.types import ChatPrompt, ExactHistory, GenerationRequest, KnownPrefix, Prompt, TokenPrompt
from tokenwire.errors import InvalidRequest, Malformed
from tokenwire.v1 import inference_pb2 as pb

REPLY: dict[str, Any] = {"role": "assistant", "content": "x", "prompt_token_ids": [1, 2], "generation_token_ids": [3]}
TALK: list[dict[str, Any]] = [{"role": "user", "content": "a"}, REPLY, {"role": "user", "content": "b"}]
PREFIX = KnownPrefix([1, 2, 3], 1, "messages[1].generation_token_ids")


@pytest.mark.parametrize(
    ("mode", "default", "wants", "reuses"),
    [
        (None, "auto", {}, False),
        (None, "auto", {"wants_ids": True}, True),
        (None, "auto", {"conversation_id": "c"}, True),
        (None, "exact", {}, True),
        (None, "template", {"wants_ids": True}, False),
        ("exact", "template", {}, True),
        ("template", "exact", {"wants_ids": True}, False),
    ],
)
def test_ids_are_reused_if_they_matter(
    mode: Literal["auto", "exact", "template"] | None,
    default: Literal["auto", "exact", "template"],
    wants: dict[str, Any],
    reuses: bool,
) -> None:
    """The request's mode takes precedence over the server's."""
    history = TokenHistoryFields(token_history=mode).exact_history([], default, **wants)

    assert (history is not None) is reuses


def test_ids_on_messages_are_the_prefix() -> None:
    """Those of the last reply that has both kinds, in any mode but template."""
    history = TokenHistoryFields().exact_history([*TALK, {"role": "assistant", "prompt_token_ids": [9]}], "template")

    assert history is not None
    assert history.prefix == PREFIX


def test_a_required_prefix_comes_before_ids_on_messages() -> None:
    """It ends with the last reply; a prompt that cannot start with it is an error."""
    history = TokenHistoryFields(required_prefix_token_ids=[7]).exact_history(TALK, "auto")

    assert history is not None
    assert history.prefix == KnownPrefix([7], 1, "required_prefix_token_ids", required=True)
    with pytest.raises(InvalidRequest, match="required_prefix_token_ids"):
        TokenHistoryFields(required_prefix_token_ids=[7], token_history="template").exact_history(TALK, "auto")


@pytest.mark.parametrize("wrong", ["12", [1.5], [True]])
def test_ids_on_messages_are_whole_numbers(wrong: Any) -> None:
    """The error names the message."""
    with pytest.raises(Malformed, match=r"messages\[0\].generation_token_ids"):
        TokenHistoryFields().exact_history([{**REPLY, "generation_token_ids": wrong}], "auto")


def test_consumers_of_messages_get_no_ids() -> None:
    """Other fields stay, and the client's messages are not changed."""
    assert without_ids([{**REPLY, "generation_log_probs": [-1.0]}]) == [{"role": "assistant", "content": "x"}]
    assert "prompt_token_ids" in REPLY


def prepared_chat(history: ExactHistory | None) -> PreparedRequest:
    """Return a chat of which nothing was found."""
    return prepared_prompt(ChatPrompt(TALK, history=history))


def prepared_prompt(prompt: Prompt) -> PreparedRequest:
    """Return a request with one prompt."""
    request = GenerationRequest("id", "digits", [prompt], pb.SamplingParams())
    return PreparedRequest(request, served_model(), request.sampling, [PreparedPrompt([1, 2], "one two")], [9])


def test_replies_show_how_much_was_reused() -> None:
    """Those whose template rendered everything have no field."""
    assert shown_history(prepared_chat(ExactHistory())) == {
        "token_history": {"mode": "exact", "reused_tokens": 0, "source": None}
    }
    assert shown_history(prepared_chat(None)) == shown_history(prepared_prompt(TokenPrompt([1]))) == {}


def test_messages_have_ids_for_clients_that_keep_them() -> None:
    """With log-probabilities if there are some."""
    carried = prepared_chat(ExactHistory(prefix=PREFIX))
    ids = {"prompt_token_ids": [1, 2], "generation_token_ids": [8]}

    assert shown_message_ids(carried, [8], None) == ids
    scored = [ScoredPosition.of(ScoredToken(8, "x", -0.5, 1))]
    assert shown_message_ids(carried, [8], scored) == {**ids, "generation_log_probs": [-0.5]}
    assert shown_message_ids(prepared_chat(ExactHistory()), [8], None) == {}
