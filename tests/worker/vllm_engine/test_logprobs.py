"""vLLM's log-probability containers are converted to rows, without an engine."""

from typing import Any

import numpy as np
import pytest

from tests.lazily import Lazily
from tokenwire.v1 import inference_pb2 as pb
from tokenwire.worker.engine.frame_buffer import FrameBuffer
from tokenwire.worker.engine.interface import EngineSequence, Step

containers = Lazily("vllm.logprobs")
vllm_outputs = Lazily("vllm.outputs")
ours = Lazily("tokenwire.worker.vllm_engine.logprobs")

pytestmark = pytest.mark.engine


def _output(*rows: tuple[list[int], list[float], int]) -> Any:
    """Return one step's output: per token the sampled id and the likeliest ones, their values, and its rank."""
    logprobs = containers.FlatLogprobs()
    for token_ids, values, rank in rows:
        ranks: Any = [rank, *range(1, len(token_ids))]
        logprobs.append_fast(token_ids, values, ranks, [None] * len(token_ids))
    ids = [row[0][0] for row in rows]
    completion = vllm_outputs.CompletionOutput(0, "", ids, cumulative_logprob=0.0, logprobs=logprobs)
    return vllm_outputs.RequestOutput("r", None, [1], None, [completion], finished=False)


def _merged(*outputs: Any) -> Any:
    first = outputs[0]
    for output in outputs[1:]:
        first.add(output, aggregate=True)
    return ours.flat_rows(first.outputs[0].logprobs)


def test_steps_that_vllm_merged_have_the_rows_of_each() -> None:
    """A sampled token that is also the likeliest appears twice in every row, also in merged ones."""
    rows = _merged(
        _output(([504, 504, 2068, 10345], [-0.5, -0.5, -1.0, -2.0], 1)),
        _output(([2988, 2988, 1230, 4352], [-0.25, -0.25, -3.0, -4.0], 1)),
    )
    assert rows.width == 4
    assert list(rows.token_ids) == [504, 504, 2068, 10345, 2988, 2988, 1230, 4352]
    assert list(rows.logprobs) == [-0.5, -0.5, -1.0, -2.0, -0.25, -0.25, -3.0, -4.0]
    assert list(rows.sampled_ranks) == [1, 1]


def test_a_sequence_gets_rows_or_only_the_scores_of_its_tokens() -> None:
    """Whatever else the widest request of the batch has in its rows."""
    step, logprobs = Step(), (np.array([[9, 1], [3, 1]]), np.array([[-9.0, -1.0], [-3.0, -1.0]]), np.array([40, 3]))
    rows, scored = (EngineSequence(FrameBuffer(), 0, "r", 0, only) for only in (False, True))
    for sequence in (rows, scored):
        ours.add_logprobs(step, sequence, logprobs, 1)

    assert step.scores == [(scored, [-9.0, -3.0])]
    assert step.logprobs == [
        (rows, pb.LogprobRows(width=1, token_ids=[9, 3], logprobs=[-9, -3], sampled_ranks=[40, 3]))
    ]


def test_a_sampled_token_returns_to_its_place_among_the_likeliest() -> None:
    """In merged rows it may be any of them, or none: then nothing was dropped."""
    rows = _merged(
        _output(([9, 1, 2, 3], [-9.0, -1.0, -2.0, -3.0], 40)),
        _output(([3, 1, 2, 3], [-3.0, -1.0, -2.0, -3.0], 3), ([7, 1, 2, 3], [-7.0, -1.0, -2.0, -3.0], 12)),
        _output(([2, 1, 2, 3], [-2.0, -1.0, -2.0, -3.0], 2)),
    )
    assert rows.width == 4
    assert list(rows.token_ids) == [9, 1, 2, 3, 3, 1, 2, 3, 7, 1, 2, 3, 2, 1, 2, 3]
    assert list(rows.logprobs) == [-9, -1, -2, -3, -3, -1, -2, -3, -7, -1, -2, -3, -2, -1, -2, -3]
    assert list(rows.sampled_ranks) == [40, 3, 12, 2]


def test_a_prompts_first_token_has_no_row() -> None:
    """Positions without log-probabilities are left out; without any there are no rows."""
    prompt = containers.FlatLogprobs()
    prompt.append(None)
    assert ours.flat_rows(prompt) == pb.LogprobRows()
    ranks: Any = [5, 1]
    prompt.append_fast([8, 4], [-2.0, -1.0], ranks, [None, None])
    rows = ours.flat_rows(prompt)
    assert (rows.width, list(rows.token_ids), list(rows.sampled_ranks)) == (2, [8, 4], [5])


@pytest.mark.parametrize(
    ("columns", "token_ids", "logprobs"),
    [
        (1, [7, 8], [-1.0, -2.0]),
        (2, [7, 5, 8, 5], [-1.0, -3.0, -2.0, -4.0]),
        (3, [7, 5, 0, 8, 5, 0], [-1.0, -3.0, float("-inf"), -2.0, -4.0, float("-inf")]),
    ],
)
def test_rows_have_the_requested_width(columns: int, token_ids: list[int], logprobs: list[float]) -> None:
    """Other requests in the batch make the engine's rows wider or narrower, and rows are merged later."""
    engine = (np.array([[7, 5], [8, 5]]), np.array([[-1.0, -3.0], [-2.0, -4.0]]), np.array([1, 2]))
    rows = ours.sampled_rows(engine, columns)
    assert (rows.width, list(rows.sampled_ranks)) == (columns, [1, 2])
    assert (list(rows.token_ids), list(rows.logprobs)) == (token_ids, logprobs)
