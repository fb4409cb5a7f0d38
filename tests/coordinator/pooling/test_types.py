"""Results of pooling, as numbers."""

from tests.coordinator.pooling.embedding import pooled_result
from tokenwire.coordinator.pooling.types import Results


def test_results_have_numbers_and_lengths() -> None:
    """Of float32, in the order of the inputs."""
    results = Results("r", [pooled_result([0.5, -1.0]), pooled_result([2.0])], [3, 4])

    assert [list(results.vector(index)) for index in range(2)] == [[0.5, -1.0], [2.0]]
    assert results.prompt_tokens == 7
