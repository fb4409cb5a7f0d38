"""vLLM's log-probability containers as rows on the wire."""

from typing import Any

from tokenwire.v1 import inference_pb2 as pb


def columns_wanted(params: Any) -> int | None:
    """Count the columns of each row that a request asked for: none, or 0 for as many as there are."""
    count: int | None = params.num_logprobs
    if count is None:
        return None
    return 0 if count < 0 else count + 1


def sampled_rows(logprobs: Any, columns: int) -> pb.LogprobRows:
    """Convert one sequence's LogprobsLists of a step; 0 columns keeps all of them."""
    token_ids, values, ranks = logprobs[:3]
    if columns and columns < token_ids.shape[1]:
        # The engine pads every row of a batch to the widest request.
        token_ids, values = token_ids[:, :columns], values[:, :columns]
    return pb.LogprobRows(
        width=token_ids.shape[1],
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
    """Convert scores of ids that the request chose per prompt row; -1 pads become id 0 at -inf, ranks are unknown."""
    return pb.LogprobRows(
        width=token_ids.shape[1],
        token_ids=token_ids.clip(min=0).ravel().tolist(),
        logprobs=values.flatten().tolist(),
    )


def flat_rows(logprobs: Any) -> pb.LogprobRows:
    """Convert FlatLogprobs, leaving out positions without any (a prompt's first token)."""
    starts = [start for start, end in zip(logprobs.start_indices, logprobs.end_indices, strict=True) if end > start]
    if not starts:
        return pb.LogprobRows()
    return pb.LogprobRows(
        width=len(logprobs.token_ids) // len(starts),
        token_ids=logprobs.token_ids,
        logprobs=logprobs.logprobs,
        sampled_ranks=[logprobs.ranks[start] for start in starts],
    )
