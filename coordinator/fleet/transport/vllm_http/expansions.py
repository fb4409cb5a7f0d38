"""Expansions of prompts with media, by which the next turns of a conversation are expanded without the server."""

from array import array
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tokenwire.errors import EngineFailed
from tokenwire.v1 import inference_pb2 as pb

_MOST_IDS = 8 * 2**20
"""Of all prompts that are kept, four bytes each."""

Items = tuple[bytes, ...]
"""Digests of a prompt's items, in their order."""


@dataclass(frozen=True, slots=True)
class _Known:
    given: "array[int]"
    """A prompt, up to the end of its last placeholder."""
    expanded: "array[int]"
    """The same as the engine sees it."""
    spans: Sequence[pb.MediaSpan]


class Expansions:
    """The latest expansions, by the items of their prompts.

    Placeholders are replaced from the front, one for each item: what follows the last one stays as it is, so another
    prompt that begins with the same ids is expanded in the same way.
    """

    def __init__(self, most_ids: int = _MOST_IDS) -> None:
        self._most_ids = most_ids
        self._ids = 0
        self._known: OrderedDict[Items, _Known] = OrderedDict()

    def find(self, token_ids: Sequence[int], items: Items) -> pb.ExpandResponse | None:
        """Return a prompt as the engine sees it; None if it is not known."""
        known = self._known.get(items)
        if known is None or array("I", token_ids[: len(known.given)]) != known.given:
            return None
        self._known.move_to_end(items)
        ids = [*known.expanded, *token_ids[len(known.given) :]]
        return pb.ExpandResponse(token_ids=ids, spans=known.spans)

    def add(self, token_ids: Sequence[int], items: Items, response: pb.ExpandResponse) -> None:
        """Keep the expansion of a prompt."""
        if not response.spans:
            return
        end = response.spans[-1].offset + response.spans[-1].length
        given = len(token_ids) - (len(response.token_ids) - end)
        if given < 0 or list(token_ids[given:]) != list(response.token_ids[end:]):
            return  # more than the placeholders was replaced
        self._drop(items)
        ids = array("I", token_ids[:given]), array("I", response.token_ids[:end])
        self._known[items] = _Known(*ids, list(response.spans))
        self._ids += sum(map(len, ids))
        while self._ids > self._most_ids:
            self._drop(next(iter(self._known)))

    def _drop(self, items: Items) -> None:
        known = self._known.pop(items, None)
        if known is not None:
            self._ids -= len(known.given) + len(known.expanded)


def expansion_in(response: Any, items: int) -> pb.ExpandResponse:
    """Return the expansion of a prompt with so many items from the server's response to it. Raises EngineFailed."""
    token_ids, ranges = response.get("prompt_token_ids"), response.get("mm_placeholders")
    if not token_ids or not ranges:
        raise EngineFailed("The server does not report the ids of pictures, as vLLM 0.32 does.")
    found = sorted((each["offset"], each["length"]) for of_modality in ranges.values() for each in of_modality)
    if len(found) != items:
        raise EngineFailed(f"The server has found {len(found)} pictures in a prompt with {items}.")
    spans = [pb.MediaSpan(offset=offset, length=length) for offset, length in found]
    return pb.ExpandResponse(token_ids=token_ids, spans=spans)
