"""Decodes a sequence in parts that nobody keeps: what decoding needs of earlier tokens is a short list of them."""

from collections.abc import Sequence

from tokenwire.coordinator.text.tokenizer import REPLACEMENT_CHARACTER, ModelTokenizer
from tokenwire.process.value_class import value_class

_PROMPT_TOKENS = 7
"""Tokens at the end of a prompt, some of which may be special and have no text."""
_KEPT_TOKENS = 5
"""Those of them before which no decoder looks back."""
_MOST_INCOMPLETE = 64
"""Tokens that may be part of a character. It has four at most, and all are decoded again with each one more."""


@value_class
class TextWindow:
    """The last tokens of a sequence, as vocabulary entries: [prefix:read] have been text, [read:] have not yet."""

    tokens: Sequence[str] = ()
    prefix: int = 0
    read: int = 0


class WindowDecoder:
    """Continues windows, as vLLM's derenderer does with the same numbers."""

    def __init__(self, tokenizer: ModelTokenizer, skip_special_tokens: bool) -> None:
        self._token_of = tokenizer.backend.id_to_token
        self._decoder = tokenizer.backend.decoder
        self._skipped = tokenizer.special_token_ids if skip_special_tokens else frozenset[int]()

    def after(self, prompt_token_ids: Sequence[int] | None) -> TextWindow:
        """Return the window after a prompt, of which some tokens at its end are enough."""
        tokens = [token for each in (prompt_token_ids or ())[-_PROMPT_TOKENS:] for token in self._tokens(each)]
        return TextWindow(tokens, max(len(tokens) - _KEPT_TOKENS, 0), len(tokens))

    def decode(self, window: TextWindow, token_ids: Sequence[int]) -> tuple[str, TextWindow]:
        """Return the text of new tokens, as far as its last character is or can be complete, and the window after."""
        tokens, prefix, read = list(window.tokens), window.prefix, window.read
        texts = []
        for token_id in token_ids:
            tokens += self._tokens(token_id)
            before, text = self._text(tokens[prefix:read]), self._text(tokens[prefix:])
            is_complete = len(text) > len(before) and not text.endswith(REPLACEMENT_CHARACTER)
            if is_complete or len(tokens) - read >= _MOST_INCOMPLETE:
                texts.append(text[len(before) :])
                prefix, read = read, len(tokens)
            del tokens[:prefix]
            read, prefix = read - prefix, 0
        return "".join(texts), TextWindow(tokens, prefix, read)

    def _tokens(self, token_id: int) -> list[str]:
        return [] if token_id in self._skipped else [self._token_of(token_id) or ""]

    def _text(self, tokens: list[str]) -> str:
        return " ".join(tokens) if self._decoder is None else self._decoder.decode(tokens)
