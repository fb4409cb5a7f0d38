"""Log-probabilities of ids as text."""

from typing import Any

from tests.coordinator.text.tiny import byte_level
from tokenwire.coordinator.api.openai.chat_request import ChatCompletionRequest
from tokenwire.coordinator.api.openai.derender_logprobs import chat_scores, completion_scores, most_shown
from tokenwire.coordinator.api.openai.derender_request import GivenPosition, GivenScore
from tokenwire.coordinator.text.logprobs import TokenTexts

TOKENIZER = byte_level()
TEXTS = TokenTexts(TOKENIZER)


def positions(text: str) -> list[GivenPosition]:
    """Return a position for each byte, with one alternative."""
    ids = TOKENIZER.encode(text, add_special_tokens=False)
    return [GivenPosition(token_id=each, logprob=-1, top_logprobs=[GivenScore(token_id=7, logprob=-2)]) for each in ids]


def test_the_last_token_of_a_character_has_its_text() -> None:
    """Also if the ones before came in an earlier chunk."""
    first, second = positions("é")

    whole = chat_scores([first, second], TEXTS)
    later = chat_scores([second], TEXTS, [first.token_id])

    assert whole is not None
    assert later is not None
    assert [entry["token"] for entry in whole["content"]] == ["", "é"]
    assert later["content"] == whole["content"][1:]
    assert whole["content"][1]["bytes"] == list("é".encode())
    assert len(whole["content"][1]["top_logprobs"]) == 1


def test_completions_have_lists_with_offsets() -> None:
    """They continue those of earlier chunks."""
    scores = completion_scores(positions("ab"), TEXTS, offset=5)

    assert scores is not None
    assert (scores["tokens"], scores["text_offset"], scores["token_logprobs"]) == (["a", "b"], [5, 6], [-1, -1])
    assert scores["top_logprobs"][0] == {TEXTS.text(7): -2}


def test_without_any_there_are_none() -> None:
    """In neither format."""
    assert chat_scores(None, TEXTS) is completion_scores(None, TEXTS) is None


def test_a_chat_has_as_many_alternatives_as_it_requested() -> None:
    """A reply of ids has the sampled token at least."""

    def most(**fields: Any) -> int | None:
        return most_shown(ChatCompletionRequest(messages=[], **fields))

    cut = chat_scores(positions("a"), TEXTS, most=0)

    assert cut is not None
    assert cut["content"][0]["top_logprobs"] == []
    assert [most(logprobs=True), most(logprobs=True, top_logprobs=2)] == [0, 2]
    assert (
        most(logprobs=True, top_logprobs=-1) is most(logprobs=True, logprob_token_ids=[1]) is most_shown(None) is None
    )
