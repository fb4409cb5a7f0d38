"""Translates responses of a plain vLLM server to parts of a frame."""

import asyncio
import json
from array import array
from collections.abc import Mapping, Sequence
from typing import Any

from tokenwire.protocol.vllm_names import FINISH_REASONS
from tokenwire.v1 import inference_pb2 as pb

_MOST_AT_ONCE = 2048
"""Log-probabilities that are translated without a turn for others."""


def finish_of(
    choice: Mapping[str, Any], slot: int, eos_token_ids: frozenset[int], stop_token_ids: Sequence[int]
) -> pb.Finish:
    """Return the finish of a sequence; `stop_token_ids` are those of its request.

    A server without a tokenizer reports the end-of-sequence token as a stop id, unlike other servers.
    """
    finish = pb.Finish(slot=slot, reason=FINISH_REASONS.get(choice["finish_reason"], pb.FINISH_REASON_STOP))
    matched = choice.get("stop_reason")
    if isinstance(matched, int):
        if matched in eos_token_ids and matched not in stop_token_ids:
            finish.eos_token_id = matched
        else:
            finish.stop_token_id = matched
    return finish


class PromptScores:
    """The scores of a prompt's positions, in a tenth of the memory that they take as objects of JSON."""

    def __init__(self) -> None:
        self._token_ids, self._logprobs, self._ranks = array("I"), array("f"), array("I")
        self._ends = array("I")

    def __len__(self) -> int:
        return len(self._ends)

    def add(self, position: Mapping[str, Mapping[str, Any]] | None) -> None:
        """Add the next position, None for one that has no scores."""
        for token_id, scored in (position or {}).items():
            self._token_ids.append(int(token_id))
            self._logprobs.append(scored["logprob"])
            self._ranks.append(scored.get("rank") or 0)
        self._ends.append(len(self._ranks))

    async def rows(self, prompt: Sequence[int], count: int) -> pb.LogprobRows:
        """Return the rows of the prompt tokens after the first, which has none, with turns for others."""
        rows, start, turn_at = pb.LogprobRows(), 0, _MOST_AT_ONCE
        for token_id, end in zip(prompt, self._ends, strict=True):
            if start < end:
                own = self._token_ids.index(token_id, start, end)
                shown = [own, *_ranked(self._ranks, range(start, end), count)]
                rows.width = len(shown)
                rows.token_ids.extend([self._token_ids[each] for each in shown])
                rows.logprobs.extend([self._logprobs[each] for each in shown])
                rows.sampled_ranks.append(self._ranks[own])
                start = end
            if start >= turn_at:
                turn_at = start + _MOST_AT_ONCE
                await asyncio.sleep(0)
        return rows


def row_of_token(own: Mapping[str, Any], count: int) -> pb.LogprobRows:
    """Return the row of a sampled token, with the `count` most likely ones; below 0: with all of them.

    As workers send it: the token, then the most likely ones by rank, repeating it if it is among them.
    """
    known = own.get("top_logprobs") or [own]
    ranks = [each.get("rank") or 0 for each in known]
    row = [own, *(known[each] for each in _ranked(ranks, range(len(known)), count))]
    return pb.LogprobRows(
        width=len(row),
        token_ids=[each["token_id"] for each in row],
        logprobs=[each["logprob"] for each in row],
        sampled_ranks=[own.get("rank") or 0],
    )


def _ranked(ranks: Sequence[int], places: range, count: int) -> list[int]:
    """Return the places of those of the first ranks, in their order."""
    limit = len(places) if count < 0 else count
    return sorted((each for each in places if 0 < ranks[each] <= limit), key=ranks.__getitem__)


def error_message(body: str) -> str:
    """Return the message of an error body, in OpenAI's shape or any other."""
    try:
        value = json.loads(body)
        error = value.get("error", value)
        return str(error["message"] if isinstance(error, dict) else error)
    except (ValueError, KeyError, AttributeError):
        return body[:500] or "no error message"
