"""Which differences of ids the step `kv_transfer` takes for rounding."""

import pytest

from gpu.steps.kv_transfer import is_near_tie

STEP = 0.125
"""Between neighbouring logits of 16 to 32 in bfloat16."""


@pytest.mark.parametrize("behind", [0.0, -STEP, STEP, 2 * STEP])
def test_two_roundings_are_a_near_tie(behind: float) -> None:
    """One of each token."""
    assert is_near_tie(behind)


@pytest.mark.parametrize("behind", [3 * STEP, -3 * STEP, 100.0])
def test_more_than_two_roundings_is_another_token(behind: float) -> None:
    """So is one that is not among the best at all."""
    assert not is_near_tie(behind)
