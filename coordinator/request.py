"""The nouns: what every route translates its request into, and what comes back."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tokenwire.v1 import inference_pb2 as pb


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """Messages that the chat template turns into text."""

    messages: Sequence[Mapping[str, Any]]
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    add_special_tokens: bool = False
    template_kwargs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TextPrompt:
    """Text that the tokenizer turns into ids."""

    text: str
    add_special_tokens: bool = True


@dataclass(frozen=True, slots=True)
class TokenPrompt:
    """Ids, used as they are."""

    token_ids: Sequence[int]


Prompt = ChatPrompt | TextPrompt | TokenPrompt


@dataclass(frozen=True, slots=True)
class TextRules:
    """How token ids become text, and which text ends a sequence. Never sent to a worker."""

    stop: tuple[str, ...] = ()
    include_stop_str_in_output: bool = False
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True


@dataclass(slots=True)
class GenerationRequest:
    """One request, whichever route it came through. Choice i of prompt p has index p * n + i."""

    request_id: str
    model: str
    prompts: Sequence[Prompt]
    sampling: pb.SamplingParams
    """As the client asked: absent fields are filled from the model's defaults."""
    n: int = 1
    text: TextRules = TextRules()
    max_tokens_param: str = "max_tokens"
    """The field that max_tokens came from, for error messages."""
    priority: int = 0
    cache_salt: str | None = None
    session_id: str | None = None


@dataclass(slots=True)
class Usage:
    """Tokens that a reply cost; completion tokens count what the client was given."""

    prompt_tokens: int = 0
    completion_tokens: int = 0

    def as_dict(self) -> dict[str, int]:
        """Return OpenAI's usage object."""
        return {
            "prompt_tokens": self.prompt_tokens,
            "total_tokens": self.prompt_tokens + self.completion_tokens,
            "completion_tokens": self.completion_tokens,
        }


@dataclass(frozen=True, slots=True)
class Finish:
    """Why a choice ended, in OpenAI's and vLLM's words."""

    reason: str
    """stop, length, abort or repetition."""
    stop_reason: int | str | None = None
    """The stop string or stop id that matched; None for end of sequence."""
