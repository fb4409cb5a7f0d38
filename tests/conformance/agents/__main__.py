"""Runs coding agents with scripted replies, and reports which of them work."""

import json
import sys
import tempfile
from functools import partial
from pathlib import Path

import click

from tests.conformance.agents.environments import AGENTS, SHELL_OUTPUT, program_of, run_agent
from tests.e2e.scripted import scripted_service

_ANSWER = "What was asked for is done."
_TIMEOUT_S = 120.0


def _replies(name: str) -> dict[str, str]:
    """Return the replies of an agent's two models: one answers, one repeatedly calls a tool."""
    call = json.dumps(AGENTS[name].shell_call)
    thought = "<think>\nHm.\n</think>\n\n"
    return {f"{name}-says": thought + _ANSWER, f"{name}-calls": f"{thought}<tool_call>\n{call}\n</tool_call>"}


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(sorted(AGENTS)))
def run_agents(names: tuple[str, ...]) -> None:
    """Run agents, all unless NAMES are given: each must show an answer, and run a tool and continue with its output."""
    chosen = names or tuple(AGENTS)
    for name in chosen:
        program_of(name)
    replies = {model: text for name in chosen for model, text in _replies(name).items()}
    with tempfile.TemporaryDirectory() as folder, scripted_service(Path(folder), replies) as service:
        failed = [name for name in chosen if not _works(name, service.url, Path(folder))]
    sys.exit(f"failed: {', '.join(failed)}" if failed else 0)


def _works(name: str, url: str, folder: Path) -> bool:
    # What a tool printed goes up with the next request: only a second call shows that this one was taken.
    for kind, expected, lines in (("says", _ANSWER, 1), ("calls", SHELL_OUTPUT, 2)):
        is_done = partial(_has_lines, expected, lines)
        output = run_agent(name, url, f"{name}-{kind}", folder / f"home-{name}-{kind}", is_done, _TIMEOUT_S)
        if not is_done(output):
            click.echo(f"FAILED {name} {AGENTS[name].version} {kind}\n{output[-4000:]}")
            return False
    click.echo(f"ok     {name} {AGENTS[name].version}")
    return True


def _has_lines(text: str, count: int, output: str) -> bool:
    return sum(text in line for line in output.splitlines()) >= count


if __name__ == "__main__":
    run_agents()
