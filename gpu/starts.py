"""Why a server could not start, where a part of a step can do without it."""

from collections.abc import Iterator
from contextlib import contextmanager

from gpu.step import Skipped

PARSERS_OF_TOOLS = ("--enable-auto-tool-choice", "--tool-call-parser", "hermes")
_NOT_STARTED = "did not appear"


@contextmanager
def skipped_if_not_started(what: str) -> Iterator[None]:
    """Turn the failure of a server's start within a with block into Skipped, with the end of its log."""
    try:
        yield
    except AssertionError as error:
        if _NOT_STARTED in str(error):
            raise Skipped(f"{what} does not start: {str(error)[-500:]}") from error
        raise
