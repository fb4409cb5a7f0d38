"""`python -m benchmarks.token_calls`: the Python calls that a streamed token takes in the coordinator."""

from collections import Counter
from types import CodeType, FrameType
from typing import Any

import click

from benchmarks.walk import path_in_coordinator, post_chat, profile_coordinator
from tokenwire.coordinator.auth.api_keys import AuthSettings

_CHOICES, _TOKENS = 16, 100
"""A frame has a token of each choice, so that what is called once a frame is called a sixteenth as often."""
_OFTEN = 0.25
"""A function with fewer calls a token belongs to frames, or to the request."""


class CallCount:
    """A profile function for sys.setprofile: counts the calls of each Python function."""

    def __init__(self) -> None:
        self.calls: Counter[CodeType] = Counter()

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        """Count a call."""
        if event == "call":
            self.calls[frame.f_code] += 1


def calls_per_token() -> list[tuple[str, float]]:
    """Return the coordinator's functions that are called for a streamed token, and how often."""
    counted = CallCount()

    def stream(port: int, model: str) -> None:
        post_chat(port, {"model": model, "n": _CHOICES, "max_tokens": _TOKENS, "temperature": 0.7})

    profile_coordinator(counted, stream, AuthSettings())
    each = {code: calls / (_CHOICES * _TOKENS) for code, calls in counted.calls.items()}
    ours = {code: calls for code, calls in each.items() if path_in_coordinator(code.co_filename)}
    return [(code.co_qualname, calls) for code, calls in ours.items() if calls > _OFTEN]


@click.command()
def main() -> None:
    """Print the functions that are called for a streamed token, and how often."""
    for name, calls in calls_per_token():
        click.echo(f"{name:50} {calls:.2f}")


if __name__ == "__main__":
    main()
