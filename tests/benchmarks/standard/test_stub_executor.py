"""vLLM's scheduler gets a script's tokens from an executor that computes nothing."""

from types import SimpleNamespace
from typing import Any

import pytest

pytestmark = pytest.mark.engine
SCRIPT = [7, 8, 9]


def executor() -> Any:
    """Return one with steps of no time, as the engine's core makes it."""
    from benchmarks.standard.stub_executor import StubExecutor

    made = object.__new__(StubExecutor)
    made.vllm_config = SimpleNamespace(additional_config={"script": SCRIPT, "step_ms": 0})
    made._init_executor()
    return made


def step(
    scheduled: dict[str, int], new: Any = (), cached: Any = (), finished: Any = (), logprobs: int | None = None
) -> Any:
    """Return a scheduler's output: `new` has prompts, `cached` what was computed and generated."""
    ids, computed, generated = zip(*cached, strict=True) if cached else ((), (), ())
    return SimpleNamespace(
        num_scheduled_tokens=scheduled,
        scheduled_new_reqs=[
            SimpleNamespace(
                req_id=name,
                prompt_token_ids=[1] * length,
                num_computed_tokens=found,
                sampling_params=SimpleNamespace(logprobs=logprobs),
            )
            for name, length, found in new
        ],
        scheduled_cached_reqs=SimpleNamespace(req_ids=ids, num_computed_tokens=computed, num_output_tokens=generated),
        finished_req_ids=set(finished),
    )


def test_each_sequence_gets_the_script_again_and_again() -> None:
    """A token for each step, by how many it has."""
    stub = executor()
    first = stub.execute_model(step({"a": 4}, new=[("a", 4, 0)]))
    fourth = stub.execute_model(step({"a": 1, "b": 2}, new=[("b", 6, 4)], cached=[("a", 6, 3)]))

    assert first.sampled_token_ids == [[7]]
    assert (fourth.req_ids, fourth.sampled_token_ids) == (["a", "b"], [[7], [7]])


def test_a_prompt_in_chunks_gets_its_token_at_the_end() -> None:
    """As from a model."""
    stub = executor()

    assert stub.execute_model(step({"a": 3}, new=[("a", 5, 0)])).sampled_token_ids == [[]]
    assert stub.execute_model(step({"a": 2}, cached=[("a", 3, 0)])).sampled_token_ids == [[7]]


def test_log_probabilities_are_there_for_those_who_ask() -> None:
    """The token, and the likeliest ones with it as the first."""
    stub = executor()

    assert stub.execute_model(step({"a": 2}, new=[("a", 2, 0)])).logprobs is None
    rows = stub.execute_model(step({"b": 2}, new=[("b", 2, 0)], finished=["a"], logprobs=2)).logprobs

    assert rows.logprob_token_ids.tolist() == [[7, 7, 8]]
    assert rows.logprobs.tolist() == [[-0.5, -0.5, -1.5]]
    assert stub.execute_model(step({"c": 2}, new=[("c", 2, 0)], finished=["b"])).logprobs is None
