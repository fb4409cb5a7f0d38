"""Incremental detokenization: never emits part of a character or of a stop string.

One file, since streams with and without stop strings begin alike, and decode alike.
"""

import logging
from collections.abc import Sequence
from typing import Any

from tokenizers.decoders import DecodeStream

from tokenwire.coordinator.text.stops import StopAutomaton, StopScanner, compile_stops
from tokenwire.coordinator.text.tokenizer import REPLACEMENT_CHARACTER, ModelTokenizer
from tokenwire.process.value_class import value_class

log = logging.getLogger(__name__)

StepText = tuple[str, int, str | None]
"""New text, the number of the step's tokens that count, and the stop string that matched."""

_INVALID_PREFIX = "Invalid prefix encountered"
_SHORTEST = 8
_MOST_TAIL = 64
"""Tokens at a prompt's end, of which one has text of its own."""
_MOST_PRIMED = 256
"""Tokens of a prompt that prime a stream: what comes before has no part in a character, and each choice keeps them."""
_MOST_WAITING = 64
"""Tokens without text, of a character or special ones, that a stream takes: it decodes all of them with each more."""


@value_class
class TextRules:
    """A request's rules for decoding and stop strings; never sent to a worker."""

    stop: tuple[str, ...] = ()
    include_stop_str_in_output: bool = False
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True
    detokenize: bool = True
    """Whether the text is returned; else it is decoded only to find stop strings."""


@value_class
class TextStart:
    """Where a stream starts: the ids of a prompt with which it decodes the first text as after all of the prompt."""

    token_ids: Sequence[int] = ()
    echo: str = ""
    """What the first text will repeat of the prompt: almost always nothing."""


_NO_START = TextStart()


class TextStreams:
    """Creates the streams of one request, which share its stop automaton, and those of a prompt where they start."""

    __slots__ = ("_min_tokens", "_prompt", "_rules", "_start", "_stops", "_tokenizer")

    def __init__(self, tokenizer: ModelTokenizer, rules: TextRules, min_tokens: int = 0) -> None:
        self._tokenizer = tokenizer
        self._rules = rules
        self._min_tokens = min_tokens
        self._stops = compile_stops(rules.stop) if rules.stop else None
        self._prompt: Sequence[int] = ()
        self._start = _NO_START

    def stream(self, prompt: Sequence[int]) -> "TextStream | NullTextStream":
        """Return a stream for a sequence after a prompt."""
        rules = self._rules
        if not rules.detokenize and self._stops is None:
            return NullTextStream()
        if prompt is not self._prompt:
            self._prompt, self._start = prompt, start_after(self._tokenizer, prompt, rules.skip_special_tokens)
        return TextStream(
            self._tokenizer,
            self._start,
            stops=self._stops,
            include_stop_str_in_output=rules.include_stop_str_in_output,
            min_tokens=self._min_tokens,
            skip_special_tokens=rules.skip_special_tokens,
            spaces_between_special_tokens=rules.spaces_between_special_tokens,
        )


class NullTextStream:
    """A TextStream that decodes nothing, for text that is not returned."""

    def step(self, token_ids: list[int], stop_terminated: bool, finished: bool) -> StepText:
        """Count one step's tokens, without text."""
        return "", len(token_ids), None


class TextStream:
    """Decodes one sequence step by step; with stop strings it is a StoppingTextStream."""

    __slots__ = (
        "_added_texts",
        "_after_added",
        "_decode_next",
        "_echo",
        "_include",
        "_last",
        "_plain",
        "_skip_special",
        "_texts",
        "_tokenizer",
        "_waiting",
    )
    _echo: str
    _last: int | None
    """The last token, if its text is independent of others: only what depends on them is decoded, after this one."""
    _plain: bool
    """Whether texts are as they are decoded."""

    def __new__(cls, *args: Any, stops: StopAutomaton | None = None, **kwargs: Any) -> "TextStream":
        """Choose the class: without stop strings, the usual case, no text is kept."""
        return object.__new__(cls if stops is None else StoppingTextStream)

    def __init__(
        self,
        tokenizer: ModelTokenizer,
        start: TextStart = _NO_START,
        *,
        stops: StopAutomaton | None = None,
        include_stop_str_in_output: bool = False,
        min_tokens: int = 0,
        skip_special_tokens: bool = True,
        spaces_between_special_tokens: bool = True,
    ) -> None:
        self._tokenizer = tokenizer
        self._include = include_stop_str_in_output
        self._skip_special = skip_special_tokens
        self._texts = tokenizer.texts[skip_special_tokens]
        joined = not (skip_special_tokens or spaces_between_special_tokens)
        self._added_texts: dict[int, str] | None = (tokenizer.added_token_ids or None) if joined else None
        """Texts of added tokens, if consecutive ones are joined without spaces."""
        self._begin(start)
        self._waiting: tuple[int, ...] = ()
        """Tokens since the last text: usually none, and then it is an object that all streams share."""
        self._after_added = False

    def step(self, token_ids: list[int], stop_terminated: bool, finished: bool) -> StepText:
        """Decode one step's tokens.

        `stop_terminated`: the engine ended the sequence at its last token, EOS or a stop id, which is not text.
        `finished`: this is the last step, so nothing is held back.
        """
        count = len(token_ids)
        if stop_terminated and not self._include:
            token_ids = token_ids[:-1]
        if len(token_ids) == 1 and self._plain and not self._waiting and (text := self._texts[token_ids[0]]):
            self._last = token_ids[0]  # as _decode does, without the call
            return text, count, None
        return "".join([self._decode(token_id) for token_id in token_ids]), count, None

    def _decode(self, token_id: int) -> str:
        if self._plain and not self._waiting and (text := self._texts[token_id]):
            self._last = token_id
            return text
        if self._last is not None:
            self._decode_next = DecodeStream(ids=[self._last], skip_special_tokens=self._skip_special).step
            self._last = None
        try:
            text = self._decode_next(self._tokenizer.backend, token_id) or ""
        except Exception as error:
            text = self._recover(error, token_id)
        if self._echo and text:
            text = _without_echo(text, self._echo)
            self._echo = ""
            self._plain = self._added_texts is None
        if not text or self._waiting:
            text = self._waited(token_id, text)
        return text if self._added_texts is None else self._join_added(token_id, text, self._added_texts)

    def _begin(self, start: TextStart) -> None:
        self._echo = start.echo
        self._plain = self._added_texts is None and not self._echo
        ids = start.token_ids
        self._last = ids[-1] if ids and self._texts[ids[-1]] and not start.echo else None
        if self._last is None:
            self._decode_next = DecodeStream(ids=ids, skip_special_tokens=self._skip_special).step

    def _waited(self, token_id: int, text: str) -> str:
        """Return a token's text, and count those without: after too many, a new stream takes over from here."""
        if text:
            self._waiting = ()
            return text
        waiting = self._waiting = (*self._waiting, token_id)
        if len(waiting) < _MOST_WAITING:
            return ""
        tokenizer, skips = self._tokenizer, self._skip_special
        text = tokenizer.decode_after_text(waiting, skips)
        start = start_after(tokenizer, [*tokenizer.visible_ids, *waiting], skips)
        self._waiting = ()
        self._begin(start)
        # The last character may become complete; the stream repeats then what it has of it.
        return text.removesuffix(REPLACEMENT_CHARACTER) if start.echo else text

    def _join_added(self, token_id: int, text: str, raw: dict[int, str]) -> str:
        added = raw.get(token_id)
        before, self._after_added = self._after_added, added is not None
        return added if added is not None and before else text

    def _recover(self, error: Exception, token_id: int) -> str:
        if isinstance(error, OverflowError | TypeError):
            log.warning("cannot decode token id %r", token_id)
            return ""
        if not str(error).startswith(_INVALID_PREFIX):
            raise error
        # Some byte sequences change how earlier tokens decode, which breaks the stream; continue with a new one.
        log.warning("token %r changes earlier text; restarting the decoder", token_id)
        self._decode_next = DecodeStream(skip_special_tokens=self._skip_special).step
        return self._decode_next(self._tokenizer.backend, token_id) or ""


class StoppingTextStream(TextStream):
    """A TextStream that searches for stop strings, and keeps only text that may become one."""

    __slots__ = ("_suppressed", "scanner")

    def __init__(
        self,
        tokenizer: ModelTokenizer,
        start: TextStart = _NO_START,
        *,
        stops: StopAutomaton,
        min_tokens: int = 0,
        **rules: Any,
    ) -> None:
        super().__init__(tokenizer, start, **rules)
        self.scanner = StopScanner(stops, self._include)
        self._suppressed = min_tokens
        """Number of tokens in whose text stop strings do not count."""

    def step(self, token_ids: list[int], stop_terminated: bool, finished: bool) -> StepText:
        """Decode one step's tokens; see TextStream.step. A match ends the sequence: tokens after it do not count."""
        count = len(token_ids)
        if stop_terminated and not self._include:
            token_ids = token_ids[:-1]
        scanner = self.scanner
        if len(token_ids) == 1:
            text = self._decode(token_ids[0])
            if not scanner.state and scanner.find_first(text) is None:
                if self._suppressed:
                    self._suppressed -= 1
                return text, count, None
            text, matched = self._push(text)
            if matched is not None:
                return text, 1, matched
            if finished:
                text += scanner.flush()
            return text, count, None
        return self._step_many(token_ids, count, finished)

    def _step_many(self, token_ids: list[int], count: int, finished: bool) -> StepText:
        texts = []
        for position, token_id in enumerate(token_ids, 1):
            text, matched = self._push(self._decode(token_id))
            texts.append(text)
            if matched is not None:
                return "".join(texts), position, matched
        if finished:
            texts.append(self.scanner.flush())
        return "".join(texts), count, None

    def _push(self, text: str) -> tuple[str, str | None]:
        if not self._suppressed:
            return self.scanner.push(text, True)
        self._suppressed -= 1
        return self.scanner.push(text, False)


def start_after(tokenizer: ModelTokenizer, prompt: Sequence[int], skip_special_tokens: bool = True) -> TextStart:
    """Return where the text after a prompt starts."""
    if prompt and tokenizer.texts[skip_special_tokens][prompt[-1]]:
        return TextStart(prompt[-1:])
    ids = _stand_in(tokenizer, prompt, skip_special_tokens)
    text = tokenizer.decode(ids[-_MOST_TAIL:], skip_special_tokens)
    if not text.endswith(REPLACEMENT_CHARACTER):
        return TextStart(ids)
    tail = ids[-_MOST_TAIL:]
    # The prompt ends inside a character. Primed with all of it, a stream would repeat the whole prompt, so this one
    # gets only the tokens of that character.
    for size in range(1, len(tail) + (len(tail) == len(ids))):  # all of a short prompt, but never of a truncated one
        if not tokenizer.decode(tail[:-size], skip_special_tokens).endswith(REPLACEMENT_CHARACTER):
            return TextStart(tail[-size:], tokenizer.decode(tail[-size:], skip_special_tokens))
    return _NO_START


def _without_echo(text: str, echo: str) -> str:
    """Remove from a stream's first text what it repeats of a prompt that ended inside a character."""
    if text.startswith(echo):  # the character remained incomplete
        return text[len(echo) :]
    return text.removeprefix(echo.rstrip(REPLACEMENT_CHARACTER))


def _stand_in(tokenizer: ModelTokenizer, prompt: Sequence[int], skip_special_tokens: bool) -> list[int]:
    """Return ids for a prompt, as few of its last ones as do."""
    # A stream needs the prompt only until its first text, which is decode(prompt + new) without its first
    # len(decode(prompt)) characters. Where decode(a + b) == decode(a) + decode(b) for b that begins with a token of
    # visible text, b alone gives the same first text, and the same again ends in a broken character or not.
    if tokenizer.decodes_additively:
        for length in range(_SHORTEST, min(_MOST_TAIL, len(prompt) - 1) + 1):
            if tokenizer.starts_text(prompt[-length], skip_special_tokens):
                return list(prompt[-length:])
    if skip_special_tokens:  # decoding skips them too
        special = tokenizer.special_token_ids
        prompt = [token_id for token_id in prompt if token_id not in special]
    return list(prompt[-_MOST_PRIMED:])
