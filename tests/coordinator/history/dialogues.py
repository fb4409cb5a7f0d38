"""Conversations with replies of arbitrary ids, using a history as the chat route does."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tokenwire.coordinator.generation.prompts import PreparedPrompt, prepare_prompt
from tokenwire.coordinator.history.store import MemoryStore
from tokenwire.coordinator.history.token_history import TokenHistory
from tokenwire.coordinator.history.turns import Ending
from tokenwire.coordinator.text.logprobs import TokenTexts
from tokenwire.coordinator.text.template.chat_template import ChatTemplate
from tokenwire.coordinator.text.template.messages import ChatMessage
from tokenwire.coordinator.text.template.template_options import TemplateOptions
from tokenwire.coordinator.text.tokenizer import ModelTokenizer
from tokenwire.coordinator.types import ChatPrompt, ExactHistory, ServedModel


def model_of(tokenizer: ModelTokenizer, template: str | Mapping[str, str] | None = None) -> ServedModel:
    """Return a model with this tokenizer, and its template unless another is given."""
    return ServedModel(
        names=("model",),
        root="model",
        max_model_len=1_000_000,
        max_token_id=tokenizer.backend.get_vocab_size() - 1,
        tokenizer_digest="digest",
        default_sampling_params={},
        tokenizer=tokenizer,
        template=ChatTemplate(template or tokenizer.chat_template, tokenizer.special_tokens),
        token_texts=TokenTexts(tokenizer),
        parsers=None,
    )


def new_history() -> TokenHistory:
    """Return a history that is large enough for any test."""
    return TokenHistory(MemoryStore(1 << 28, 3600.0))


@dataclass
class Dialogue:
    """One conversation."""

    model: ServedModel
    history: TokenHistory = field(default_factory=new_history)
    exact: ExactHistory = field(default_factory=ExactHistory)
    options: TemplateOptions = field(default_factory=TemplateOptions)
    messages: list[ChatMessage] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    """The last prompt and completion."""
    ending: Ending = "token"
    """How the last completion ended."""

    async def prepare(self, *messages: ChatMessage) -> PreparedPrompt:
        """Add messages; return the resulting prompt."""
        self.messages += messages
        prompt = ChatPrompt(list(self.messages), self.options, history=self.exact)
        return await prepare_prompt(prompt, self.model, history=self.history)

    async def rendered(self) -> list[int]:
        """Return the prompt as rendered by the template alone."""
        return list((await prepare_prompt(ChatPrompt(self.messages, self.options), self.model)).token_ids)

    def answer(self, prompt: PreparedPrompt, ids: Sequence[int], ending: Ending = "token", **message: Any) -> None:
        """Reply with these ids, as this message, or as their text without special tokens."""
        reply = {"role": "assistant", **(message or {"content": self.model.tokenizer.decode(ids)})}
        assert prompt.history is not None
        prompt.history.store(prompt.token_ids, [reply], ids, ending)
        self.messages.append(reply)
        self.ids, self.ending = [*prompt.token_ids, *ids], ending


def id_of(model: ServedModel, token: str) -> int:
    """Return the id of a token."""
    found = model.tokenizer.backend.token_to_id(token)
    assert found is not None, token
    return found


class Babble:
    """Draws ids that no template would tokenize to: random pieces of words."""

    def __init__(self, model: ServedModel, seed: int) -> None:
        self._model = model
        self._random = random.Random(seed)
        self._added = model.tokenizer.added_token_ids

    def ids(self, count: int) -> list[int]:
        """Return ids of text."""
        found: list[int] = []
        while len(found) < count:
            token_id = self._random.randrange(self._model.max_token_id)
            if token_id not in self._added:
                found.append(token_id)
        return found

    def text(self, count: int) -> str:
        """Return a text."""
        return self._model.tokenizer.decode(self.ids(count))

    def chance(self, probability: float) -> bool:
        """Return True with this probability."""
        return self._random.random() < probability

    def choice(self, items: Sequence[Any]) -> Any:
        """Return one of several."""
        return self._random.choice(items)
