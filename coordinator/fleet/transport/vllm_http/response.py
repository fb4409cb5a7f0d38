"""Translates responses of a plain vLLM server to parts of a frame."""

import asyncio
import json
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


def rows_of_choice(logprobs: Mapping[str, Any] | None, count: int) -> list[pb.LogprobRows]:
    """Return the rows of sampled tokens, each with the `count` most likely ones; below 0: with all of them."""
    content = (logprobs or {}).get("content") or ()
    return [_row(each, each.get("top_logprobs") or [each], count) for each in content]


async def rows_of_prompt(
    positions: Sequence[Mapping[str, Any] | None], prompt: Sequence[int], count: int
) -> pb.LogprobRows:
    """Return the rows of the prompt tokens after the first, which has none, with turns for others."""
    rows, taken = pb.LogprobRows(), 0
    for token_id, position in zip(prompt, positions, strict=True):
        if position is not None:
            taken += len(position)
            if taken > _MOST_AT_ONCE:
                taken = 0
                await asyncio.sleep(0)
            known = [{"token_id": int(each), **scored} for each, scored in position.items()]
            rows.MergeFrom(_row(next(each for each in known if each["token_id"] == token_id), known, count))
    return rows


def _row(own: Mapping[str, Any], known: Sequence[Mapping[str, Any]], count: int) -> pb.LogprobRows:
    """Return a row as workers send it: the token, then the most likely ones by rank, repeating it if among them."""
    limit = len(known) if count < 0 else count
    ranked = sorted((each for each in known if 0 < (each.get("rank") or 0) <= limit), key=lambda each: each["rank"])
    row = [own, *ranked]
    return pb.LogprobRows(
        width=len(row),
        token_ids=[each["token_id"] for each in row],
        logprobs=[each["logprob"] for each in row],
        sampled_ranks=[own.get("rank") or 0],
    )


def error_message(body: str) -> str:
    """Return the message of an error body, in OpenAI's shape or any other."""
    try:
        value = json.loads(body)
        error = value.get("error", value)
        return str(error["message"] if isinstance(error, dict) else error)
    except (ValueError, KeyError, AttributeError):
        return body[:500] or "no error message"
