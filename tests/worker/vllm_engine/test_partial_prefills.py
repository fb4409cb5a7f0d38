"""Generators of incomplete prompts are not used by sampling."""

from typing import Any

import numpy as np
import pytest

from tokenwire.worker.vllm_engine.partial_prefills import without_generators_of_partial_prefills


class Runner:
    """A fake of vLLM's runner with three sequences, of which the second one's prompt is incomplete."""

    def __init__(self) -> None:
        self.input_batch = self
        self.generators: dict[int, Any] = {0: "first", 1: "second"}
        self.discard_request_mask = self
        self.np = np.array([False, True, False])
        self.seen: dict[int, Any] = {}

    def sample_tokens(self, grammar: str) -> str:
        """Record which generators are present."""
        self.seen = dict(self.generators)
        if grammar == "broken":
            raise ValueError(grammar)
        return grammar


def test_only_tokens_that_are_kept_are_drawn_with_their_generators() -> None:
    """The second sequence's generator is removed during sampling, and restored afterwards."""
    runner = Runner()
    sample = without_generators_of_partial_prefills(runner, runner.sample_tokens)

    assert sample("grammar") == "grammar"

    assert runner.seen == {0: "first"}
    assert runner.generators == {0: "first", 1: "second"}


def test_generators_are_restored_if_sampling_fails() -> None:
    """The error propagates, and the batch is unchanged."""
    runner = Runner()
    with pytest.raises(ValueError, match="broken"):
        without_generators_of_partial_prefills(runner, runner.sample_tokens)("broken")
    assert runner.generators == {0: "first", 1: "second"}
