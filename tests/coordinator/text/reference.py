"""A plain reference implementation of detokenization and stop strings: decode everything, then search."""

from collections.abc import Sequence
from dataclasses import dataclass

from tokenizers.decoders import DecodeStream

from tokenwire.coordinator.text.tokenizer import ModelTokenizer


@dataclass(frozen=True)
class ReferenceResult:
    """How a sequence ends."""

    text: str
    kept: int
    matched: str | None


def texts_of_prefixes(
    tokenizer: ModelTokenizer, prompt: Sequence[int], ids: Sequence[int], skip: bool = True
) -> list[str]:
    """Return the text after 0, 1, 2 … tokens, without incomplete characters."""
    before = len(tokenizer.decode(list(prompt), skip))
    texts = [""]
    for count in range(1, len(ids) + 1):
        text = tokenizer.decode([*prompt, *ids[:count]], skip)
        texts.append(texts[-1] if text.endswith("\ufffd") else text[before:])
    return texts


def stream_deltas(tokenizer: ModelTokenizer, prompt: Sequence[int], ids: Sequence[int], skip: bool) -> list[str]:
    """Return the text of each token, from a stream primed with the whole prompt."""
    stream, deltas = DecodeStream(ids=list(prompt), skip_special_tokens=skip), []
    for token_id in ids:
        try:
            delta = stream.step(tokenizer.backend, token_id)
        except Exception as error:
            if "Invalid prefix" not in str(error):
                raise
            stream = DecodeStream(skip_special_tokens=skip)
            delta = stream.step(tokenizer.backend, token_id)
        deltas.append(delta or "")
    return deltas


def find_stop(text: str, stops: Sequence[str], beyond: int) -> tuple[int, str] | None:
    """Return the end of the first match that ends beyond an offset, and its stop string."""
    for end in range(beyond + 1, len(text) + 1):
        for stop in stops:
            if text[:end].endswith(stop):
                return end, stop
    return None


def reference_result(texts: Sequence[str], stops: Sequence[str], min_tokens: int, include: bool) -> ReferenceResult:
    """Return the result of a sequence with these texts after each token."""
    count = len(texts) - 1
    found = find_stop(texts[-1], stops, len(texts[min(min_tokens, count)]))
    if found is None:
        return ReferenceResult(texts[-1], count, None)
    end, stop = found
    kept = next(k for k in range(1, count + 1) if len(texts[k]) >= end)
    return ReferenceResult(texts[-1][: end if include else end - len(stop)], kept, stop)


def longest_open_prefix(text: str, stops: Sequence[str]) -> int:
    """Return the length of the longest suffix of the text that is a proper prefix of some stop string."""
    lengths = range(min(len(text), max(map(len, stops)) - 1), 0, -1)
    return next((n for n in lengths if any(len(s) > n and s.startswith(text[-n:]) for s in stops)), 0)
