"""Converts vLLM's log-probability containers to rows of the protocol."""

from typing import Any

import numpy as np

from tokenwire.v1 import inference_pb2 as pb
from tokenwire.worker.engine.interface import EngineSequence, Step


def columns_wanted(params: Any, vocab_size: int) -> int | None:
    """Return the columns per row that a request needs, None if it needs none."""
    count: int | None = params.num_logprobs
    if count is None:
        return None
    return (vocab_size if count < 0 else count) + 1


def add_logprobs(step: Step, sequence: EngineSequence, logprobs: Any, columns: int) -> None:
    """Add the LogprobsLists of a sequence's new tokens to their step: as rows, or only their first column."""
    if sequence.sampled_only:
        step.scores.append((sequence, logprobs[1][:, 0].tolist()))
    else:
        step.logprobs.append((sequence, sampled_rows(logprobs, columns)))


def sampled_rows(logprobs: Any, columns: int) -> pb.LogprobRows:
    """Convert one sequence's LogprobsLists of a step to rows with this number of columns.

    The engine makes all rows of a batch equally wide: as the widest request, or as the one with the most
    `logprob_token_ids` if there is any. Missing columns become id 0 at -inf, as a sequence's rows have one width.
    """
    token_ids, values, ranks = logprobs[:3]
    token_ids, values = token_ids[:, :columns], values[:, :columns]
    if token_ids.shape[1] < columns:
        missing = ((0, 0), (0, columns - token_ids.shape[1]))
        token_ids, values = np.pad(token_ids, missing), np.pad(values, missing, constant_values=-np.inf)
    return pb.LogprobRows(
        width=columns,
        token_ids=token_ids.ravel().tolist(),
        logprobs=values.ravel().tolist(),
        sampled_ranks=ranks.tolist(),
    )


def prompt_rows(logprobs: Any) -> pb.LogprobRows:
    """Convert a prompt's LogprobsTensors, one row per prompt token after the first."""
    token_ids, values, ranks = logprobs[:3]
    return pb.LogprobRows(
        width=token_ids.shape[1],
        token_ids=token_ids.flatten().tolist(),
        logprobs=values.flatten().tolist(),
        sampled_ranks=ranks.tolist(),
    )


def scored_rows(token_ids: Any, values: Any) -> pb.LogprobRows:
    """Convert scores of the ids that a request chose per prompt row; -1 pads become id 0 at -inf, without ranks."""
    return pb.LogprobRows(
        width=token_ids.shape[1],
        token_ids=token_ids.clip(min=0).ravel().tolist(),
        logprobs=values.flatten().tolist(),
    )


def flat_rows(logprobs: Any) -> pb.LogprobRows:
    """Convert FlatLogprobs, skipping positions without any (a prompt's first token).

    Rows that vLLM merged into an earlier output went through a dict: a sampled token that is also among the likeliest
    is there once, with its later rank, which is its column. The first row is always the engine's own.
    """
    spans = [span for span in zip(logprobs.start_indices, logprobs.end_indices, strict=True) if span[0] < span[1]]
    rows = pb.LogprobRows(width=max((end - start for start, end in spans), default=0))
    for start, end in spans:
        token_ids, values, rank = logprobs.token_ids[start:end], logprobs.logprobs[start:end], logprobs.ranks[start]
        while len(token_ids) < rows.width:
            token_ids.insert(rank, token_ids[0])
            values.insert(rank, values[0])
        rows.token_ids.extend(token_ids)
        rows.logprobs.extend(values)
        rows.sampled_ranks.append(rank)
    return rows
