"""`python -m benchmarks.assertions`: how much of what a coordinator executes for a token and a request are assertions.

Counted in bytecode instructions of its event loop's thread, which do not depend on the machine.
"""

import ast
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

import click

from benchmarks.walk import path_in_coordinator, post_chat, profile_coordinator
from tokenwire.coordinator.auth.api_keys import AuthSettings, parse_keys

_ROOT = Path(__file__).resolve().parents[1]
_SHORT, _LONG = 1, 101
"""Tokens of the replies that are compared."""
_WARM_UP, _REPLIES = 3, 5
_KEY = "walk"


@dataclass(frozen=True, slots=True)
class Instructions:
    """What was executed: in all, and of that in assertions."""

    total: float
    asserted: float

    @property
    def share(self) -> float:
        """The share of assertions, in percent."""
        return 100 * self.asserted / self.total


@cache
def _asserted_lines(path: str) -> frozenset[int]:
    """Return the lines of a file's assertions, if it is one of the coordinator's."""
    name = path_in_coordinator(path)
    nodes = ast.walk(ast.parse((_ROOT / name).read_text())) if name else ()
    spans = ((node.lineno, node.end_lineno or node.lineno) for node in nodes if isinstance(node, ast.Assert))
    return frozenset(line for first, last in spans for line in range(first, last + 1))


class InstructionCounter:
    """A trace function for sys.settrace that counts instructions."""

    def __init__(self) -> None:
        self.total = self.asserted = 0

    def begin(self) -> None:
        """Count from zero."""
        self.total = self.asserted = 0

    def __call__(self, frame: FrameType, event: str, argument: Any) -> "InstructionCounter":
        """Count an instruction, and let all of a new frame be counted."""
        if event == "call":
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
        elif event == "opcode":
            self.total += 1
            self.asserted += frame.f_lineno in _asserted_lines(frame.f_code.co_filename)
        return self


def count_instructions() -> Mapping[str, Instructions]:
    """Return the instructions of a request, and of each further token of its stream.

    Of some replies, the one with fewest counts: the others have more of what a coordinator does beside its requests.
    """
    counter, least = InstructionCounter(), dict[int, tuple[int, int]]()

    def send_chats(port: int, model: str) -> None:
        for length in (_SHORT, _LONG):
            counts = []
            for _ in range(_WARM_UP + _REPLIES):
                counter.begin()
                post_chat(port, {"max_tokens": length, "model": model, "ignore_eos": True})
                counts.append((counter.total, counter.asserted))
            least[length] = min(counts[_WARM_UP:], key=lambda counted: counted[::-1])

    profile_coordinator(counter, send_chats, AuthSettings(keys=tuple(parse_keys(_KEY, "walk"))), sys.settrace)
    tokens = _LONG - _SHORT
    total, asserted = (long - short for long, short in zip(least[_LONG], least[_SHORT], strict=True))
    return {"a request": Instructions(*least[_SHORT]), "a token": Instructions(total / tokens, asserted / tokens)}


@click.command()
def main() -> None:
    """Print how many bytecode instructions a request and a token take, and how many of them are assertions."""
    for name, counted in count_instructions().items():
        share = f"{counted.asserted:.2f} ({counted.share:.3f} %)"
        click.echo(f"{name}: {counted.total:.0f} instructions, of assertions {share}")


if __name__ == "__main__":
    main()
