"""Log-probabilities in the formats of OpenAI's chat and completions, as vLLM fills them."""

import math
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any, TypeVar

from tokenwire.coordinator.api.json_pieces import JsonPieces, array_in_parts, object_pieces, slices
from tokenwire.coordinator.api.json_text import json_bytes
from tokenwire.coordinator.text.logprobs import ScoredPosition, ScoredToken
from tokenwire.errors import ProtocolError
from tokenwire.process.batches import batches_by_size
from tokenwire.process.value_class import value_class

LOGPROB_FLOOR = -9999.0
"""Replaces minus infinity, which JSON cannot represent."""
_TOKENS_BETWEEN_YIELDS = 2048
"""Log-probabilities that are rendered at once."""
_MOST_RENDERED = 65_536
"""Tokens whose JSON is kept."""


Position = TypeVar("Position", ScoredPosition, ScoredPosition | None)


@value_class
class LogprobStyle:
    """Which tokens of each position are returned, and how they are written."""

    top: int
    """Number of most likely tokens; -1: all."""
    everything: bool = False
    """All that the engine reported: the ids that the request named."""
    as_token_ids: bool = False
    """Write tokens as "token_id:N"."""

    def names(self, position: ScoredPosition) -> Sequence[str]:
        """Return a position's tokens as they are written."""
        return [f"token_id:{each}" for each in position.token_ids] if self.as_token_ids else position.texts

    @property
    def width(self) -> float:
        """The most log-probabilities of a position that are shown, with its own token's."""
        return math.inf if self.most is None else 1 + self.most

    @property
    def most(self) -> int | None:
        """The most tokens of a position that are returned; None: all."""
        return None if self.everything or self.top == -1 else self.top


def chat_logprobs(positions: Sequence[ScoredPosition], style: LogprobStyle) -> JsonPieces:
    """Return chat's logprobs object."""
    return JsonPieces(lambda: object_pieces({"content": chat_entries(positions, style)}))


def chat_entries(positions: Sequence[ScoredPosition], style: LogprobStyle) -> JsonPieces:
    """Return the entries of chat's logprobs object."""

    def pieces() -> Iterator[bytes]:
        start = b"["
        for some in batches(positions):
            yield start + chat_entries_json(some, style)
            start = b","
        yield b"[]" if start == b"[" else b"]"

    return JsonPieces(pieces)


def batches(positions: Iterable[Position]) -> Iterator[list[Position]]:
    """Yield positions in lists that take a few milliseconds to render."""
    return batches_by_size(positions, lambda position: 1 if position is None else len(position), _TOKENS_BETWEEN_YIELDS)


def chat_entries_json(positions: Sequence[ScoredPosition], style: LogprobStyle) -> bytes:
    """Return the entries as JSON without brackets, of parts that are rendered once for each token."""
    entries, most = [], style.most
    for position in positions:
        values = position.logprobs
        if not min(values) >= LOGPROB_FLOOR:  # NaN is neither above nor below it
            values = _values(position)
        # Five times faster than Python's own conversion to decimals, which would take half of the time.
        numbers = json_bytes(values)[1:-1].split(b",")
        if style.as_token_ids:
            names = style.names(position)
            parts = [*map(_around_number, names)]
            own = _around_number(names[0], position.texts[0])
        else:
            parts = [*map(_around_number, position.texts)]
            own = parts[0]
        top = b"},".join(parts[:most]) + b"}" if most != 0 else b""
        entries.append((own + b',"top_logprobs":[' + top + b"]}") % (numbers[0], *numbers[:most]))
    return b",".join(entries)


def _values(position: ScoredPosition) -> Sequence[float]:
    """Return log-probabilities that JSON can represent."""
    return [max(value, LOGPROB_FLOOR) for value in position.logprobs]


@lru_cache(_MOST_RENDERED)
def _around_number(name: str, text: str | None = None) -> bytes:
    """Return the JSON of a token, by default of its name's text, with a place for its log-probability."""
    shown_bytes = list((name if text is None else text).encode("utf-8", errors="replace"))
    before, after = (json_bytes(each).replace(b"%", b"%%") for each in (name, shown_bytes))
    return b'{"token":%b,"logprob":%%b,"bytes":%b' % (before, after)


def completion_logprobs(
    token_ids: Sequence[int],
    positions: Sequence[ScoredPosition | None],
    style: LogprobStyle,
    decode: Callable[[int], str],
    offset: int = 0,
) -> tuple[dict[str, Any], int]:
    """Return completions' logprobs object, and the offset of the following text.

    decode: decodes a token without log-probabilities, such as the first of a prompt. offset: characters before the
    first token. Raises ProtocolError if not every token has a position.
    """
    if len(token_ids) != len(positions):
        raise ProtocolError("The worker did not send log-probabilities for each token.")
    tokens: list[str] = []
    values: list[float | None] = []
    tops: list[dict[str, float] | None] = []
    offsets: list[int] = []
    shown = None if style.most is None else style.most + 1
    for token_id, position in zip(token_ids, positions, strict=True):
        if position is None:
            names = style.names(ScoredPosition([token_id], [decode(token_id)], [0.0], [0]))
            values.append(None)
            tops.append(None)
        else:
            names, scores = style.names(position), _values(position)
            values.append(scores[0])
            # OpenAI's definition: up to one more than requested, because the sampled token is included.
            tops.append(dict(zip(names[:shown], scores[:shown], strict=True)))
        tokens.append(names[0])
        offsets.append(offset)
        offset += len(tokens[-1])
    return {"text_offset": offsets, "token_logprobs": values, "tokens": tokens, "top_logprobs": tops}, offset


def completion_pieces(
    token_ids: Iterable[int],
    positions: Iterable[ScoredPosition | None],
    style: LogprobStyle,
    decode: Callable[[int], str],
) -> JsonPieces:
    """Return completions' logprobs object of a whole reply. Takes what `completion_logprobs` takes."""
    return JsonPieces(lambda: completion_parts(token_ids, positions, style, decode))


def completion_parts(
    token_ids: Iterable[int],
    positions: Iterable[ScoredPosition | None],
    style: LogprobStyle,
    decode: Callable[[int], str],
    offset: int = 0,
) -> Generator[bytes, None, int]:
    """Yield the same in pieces; return the offset of the following text."""
    ids, start = iter(token_ids), b'{"top_logprobs":['
    shorter: dict[str, list[Any]] = {"text_offset": [], "token_logprobs": [], "tokens": []}
    for some in batches(positions):
        made, offset = completion_logprobs(list(islice(ids, len(some))), some, style, decode, offset)
        for name, values in shorter.items():
            values += made[name]
        yield start + json_bytes(made["top_logprobs"])[1:-1]
        start = b","
    yield (start if start != b"," else b"") + b"]"
    for name, values in shorter.items():
        yield b"," + json_bytes(name) + b":"
        yield from array_in_parts(slices(values))
    yield b"}"
    return offset


def prompt_logprobs(positions: Iterable[ScoredPosition | None] | None) -> JsonPieces | None:
    """Return vLLM's prompt_logprobs: one object by token id for each token of the prompt."""
    if positions is None:
        return None
    known = positions

    def pieces() -> Iterator[bytes]:
        return iter(array_in_parts([_by_id(position) for position in some] for some in batches(known)))

    return JsonPieces(pieces)


def _by_id(position: ScoredPosition | None) -> dict[str, Any] | None:
    return None if position is None else {str(token.token_id): _scored(token) for token in position}


def _scored(token: ScoredToken) -> dict[str, Any]:
    return {"logprob": max(token.logprob, LOGPROB_FLOOR), "rank": token.rank, "decoded_token": token.text}
