"""The tiny model's fixed replies: those of the embedded model to these prompts, or alike."""

from dataclasses import dataclass
from typing import Any

from tests.conformance.parity.corpus.prompts_used import COLORS, FRANCE, PARTY, STORY, SUM, TURNS

END = "<|im_end|>"


@dataclass(frozen=True)
class LearnedReply:
    """A reply, and the strength of its logits."""

    prompt: str | list[dict[str, str]]
    """Text, or a chat."""
    text: str
    logit: float = 12.5
    """Of every token; those of all others add up to about as much, so that samples differ."""


def _chat(content: str, *more: dict[str, Any]) -> list[dict[str, str]]:
    return [{"role": "user", "content": content}, *more]


_BEGUN = {"role": "assistant", "content": "Well, the answer"}
_SECOND = 10.5
"""The logit of the reply where the first choice is forbidden."""
_BARE = f"<|im_start|>user\n{SUM}<|im_end|>\n<|im_start|>assistant\n"
"""Without the system prompt of the template."""

REPLIES = (
    LearnedReply(_chat(SUM), f"The answer to 2 + 2 is 4.{END}"),
    LearnedReply(_BARE, f"The answer to 2 + 2 is 4.{END}"),
    LearnedReply(_chat(SUM), "The answer to 2 + 2 is 4.\n\nThe sum of two numbers", _SECOND),
    LearnedReply(_chat(SUM), f"Four.{END}", _SECOND),
    LearnedReply(_chat(SUM, _BEGUN), f" is 4.{END}"),
    LearnedReply(_chat(COLORS), f"1. Red\n2. Blue\n3. Green{END}"),
    LearnedReply(
        _chat(STORY), "Once upon a time, there was a little fish named Finn, who lived in the sea with his family."
    ),
    LearnedReply(_chat(PARTY), "🎉🎊🥳🎉🎊🥳"),
    LearnedReply(TURNS, f"I am a small model.{END}"),
    LearnedReply(FRANCE, " Paris.\n\nThe answer is: 2018-01"),
    LearnedReply(FRANCE, " Paris, the city of light.", _SECOND),
)
