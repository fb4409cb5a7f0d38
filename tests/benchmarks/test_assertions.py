"""Assertions cost a coordinator next to nothing: counts of instructions, which no machine changes."""

import re
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow


def test_assertions_are_less_than_a_hundredth_of_what_a_token_and_a_request_take() -> None:
    """They stand where something begins or ends, not where tokens pass."""
    printed = subprocess.run(
        [sys.executable, "-m", "benchmarks.assertions"], stdout=subprocess.PIPE, text=True, check=True, timeout=120
    ).stdout

    found = re.findall(r"(a \w+): (\d+) instructions, of assertions ([\d.]+) \(([\d.]+) %\)", printed)
    shares = {name: float(share) for name, *_, share in found}
    assert shares.keys() == {"a request", "a token"}, printed
    assert all(int(total) > 100 for _, total, *_ in found), printed
    assert float(found[0][2]) > 0, printed
    assert max(shares.values()) < 1, printed
