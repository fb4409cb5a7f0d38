"""`tokenwire coordinator`: its options, and how it starts."""

import click
import pytest

from tests.tokenwire.cli.given import parse
from tokenwire.cli.click_options import build
from tokenwire.cli.coordinator import COORDINATOR_OPTIONS, CoordinatorOptions


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--worker", "x:1", "--nothing"], "--nothing"),
        ([], "--worker"),
        (["--worker", "x:1", "--port", "many"], "--port"),
        (["--worker", "x:1", "--port", "70000"], "--port"),
        (["--worker", "x:1", "--max-queue-mb", "0"], "--max-queue-mb"),
        (["--worker", "x:1", "--routing", "best"], "--routing"),
        (["--worker", "x:1", "--tokenizer", "/nowhere"], "--tokenizer"),
    ],
)
def test_errors_name_the_flag(given: list[str], message: str) -> None:
    """Of unknown flags, values of another type, and values out of bounds."""
    with pytest.raises(click.UsageError) as rejected:
        parse(COORDINATOR_OPTIONS, given)
    assert message in rejected.value.format_message()


def test_the_stop_timeout_covers_the_drain() -> None:
    """The parent process waits until the last reply may have ended."""
    given = {"--worker": ("x:1",), "--drain-delay": 20.0, "--drain-timeout": 300.0}
    assert build(CoordinatorOptions, given).stop_timeout_s > 320
