"""What a silence of the background client is blamed for."""

import pytest

from tests.adversary.draws import draw
from tests.adversary.runner import Measurement, longest_silence


def test_a_silence_without_the_coordinators_cpu_is_the_machines() -> None:
    """It is a silence, but nobody's fault."""
    assert longest_silence([0.0, 2.0], [(0.0, 5.0), (2.0, 5.0)]) == (2.0, 0.0)


def test_a_silence_that_it_computes_in_is_its_own() -> None:
    """Up to the seconds of CPU, even if a longer silence had less of them."""
    samples = [(0.0, 5.0), (3.0, 5.1), (4.0, 6.1)]

    silence, blocked = longest_silence([0.0, 3.0, 4.0], samples)

    assert silence == 3.0
    assert blocked == pytest.approx(1.0)


def test_cpu_between_samples_is_interpolated() -> None:
    """Data comes between them."""
    assert longest_silence([1.0, 2.0], [(0.0, 0.0), (4.0, 4.0)])[1] == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("change", "violates"),
    [({}, False), ({"blocked_s": 0.6}, True), ({"memory_mb": 257.0}, True), ({"refused": True}, True)],
)
def test_what_an_attack_may_cost(change: dict[str, float], violates: bool) -> None:
    """Half a second of silence and 256 MB, and no request of another client."""
    figures = {"seconds": 9.0, "silence_s": 9.0, "blocked_s": 0.5, "cpu_s": 9.0, "memory_mb": 256.0, **change}

    measurement = Measurement(draw(0), (200,), "", **figures, died=False, broke=False)  # type: ignore[arg-type]

    assert measurement.violates is violates
