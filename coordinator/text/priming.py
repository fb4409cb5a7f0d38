"""Starts a decode stream behind a prompt, at a cost that does not grow with the prompt where that changes nothing."""

from collections.abc import Sequence

from tokenizers.decoders import DecodeStream

from tokenwire.coordinator.text.tokenizer import Tokenizer

_BROKEN = "\ufffd"
_SUFFIX_LENGTHS = (8, 16, 32, 64)


def prime(tokenizer: Tokenizer, prompt: Sequence[int], skip_special_tokens: bool) -> tuple[DecodeStream, str]:
    """Return a stream that has seen the prompt, and what its first text will repeat of the prompt: almost always ""."""
    ids = _stand_in(tokenizer, prompt, skip_special_tokens)
    tail = ids[-_SUFFIX_LENGTHS[-1] :]
    if not tokenizer.decode(tail, skip_special_tokens).endswith(_BROKEN):
        return DecodeStream(ids=ids, skip_special_tokens=skip_special_tokens), ""
    # The prompt ends inside a character. Primed with all of it, a stream would give the whole prompt out again, so
    # this one gets only the tokens of that character.
    for size in range(1, len(tail) + (len(tail) == len(ids))):  # all of a short prompt, but never a cut one
        if not tokenizer.decode(tail[:-size], skip_special_tokens).endswith(_BROKEN):
            ids = tail[-size:]
            return DecodeStream(ids=ids, skip_special_tokens=skip_special_tokens), tokenizer.decode(
                ids, skip_special_tokens
            )
    return DecodeStream(skip_special_tokens=skip_special_tokens), ""


def without_echo(text: str, echo: str) -> str:
    """Cut from a stream's first text what it repeats of a prompt that ended inside a character."""
    if text.startswith(echo):  # the character stayed broken
        return text[len(echo) :]
    return text.removeprefix(echo.rstrip(_BROKEN))


def _stand_in(tokenizer: Tokenizer, prompt: Sequence[int], skip_special_tokens: bool) -> list[int]:
    # A stream needs the prompt only until its first text, which is decode(prompt + new) without its first
    # len(decode(prompt)) characters. Where decode(a + b) == decode(a) + decode(b) for b that begins with a token of
    # visible text, b alone gives the same first text, and the same again ends in a broken character or not.
    if tokenizer.decodes_additively:
        for length in _SUFFIX_LENGTHS:
            if length >= len(prompt):
                break
            suffix = list(prompt[-length:])
            if tokenizer.starts_text(suffix[0], skip_special_tokens) and tokenizer.decode(suffix, skip_special_tokens):
                return suffix
    return list(prompt)
