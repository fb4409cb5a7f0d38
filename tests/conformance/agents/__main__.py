"""Runs agents with scripted replies, and reports which sessions of which agents work."""

import json
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click
import httpx

from tests.conformance.agents.agent import Agent, Place
from tests.conformance.agents.installed import bin_of
from tests.conformance.agents.isolation import isolate
from tests.conformance.agents.running import AgentProcess
from tests.conformance.agents.sessions import SESSIONS, AgentSession, failures_of, task_of
from tests.conformance.agents.table import AGENTS
from tests.e2e.scripted import PARSERS, write_model
from tests.processes import Service, coordinator, simulated_worker

_CONTINUED = re.compile(r'^tokenwire_prefix_divergence_total\{cause="none"\} [1-9]', re.MULTILINE)
_MODEL = "scripted"
_TIMEOUT_S = 180.0
_TEMPLATE = ("--chat-template", str(Path(__file__).parents[3] / "scripts" / "smollm2-tools.jinja"))
"""It renders tools, calls and their results, as those of models do."""
_WORKER = ("--sim-max-model-len", "400000", "--sim-prefill-rate", "0", "--sim-step-ms", "1")


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(sorted(AGENTS)))
@click.option("--only", multiple=True, type=click.Choice(list(SESSIONS)), help="Run these sessions.")
@click.option("--keep", type=click.Path(path_type=Path), help="A folder for what agents and servers print.")
def run_agents(names: tuple[str, ...], only: tuple[str, ...], keep: Path | None) -> None:
    """Run agents, all unless NAMES are given, without a network."""
    chosen = names or tuple(AGENTS)
    for name in chosen:
        bin_of(name, AGENTS[name])
    isolate("tests.conformance.agents", sys.argv[1:])
    # A shell lets what it runs in the background ignore Ctrl-C, and agents would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) if keep is None else keep.absolute()
        works = [_works(name, only or tuple(SESSIONS), folder / name) for name in chosen]
        sys.exit(not all(works))


def _works(name: str, abilities: Sequence[str], folder: Path) -> bool:
    """Run an agent's sessions, each with its own server; return whether all of them are as they should be."""
    agent = AGENTS[name]
    works = True
    for ability in abilities:
        place = Place("", _MODEL, folder / ability)
        shutil.rmtree(place.home, ignore_errors=True)
        place.work.mkdir(parents=True)
        session = SESSIONS[ability](name, agent, place, agent.tools)
        if session is None:
            click.echo(f"-      {name} {agent.version} {ability}")
            continue
        with _scripted(folder / f"{ability}-server", session) as service:
            failed = _run(name, agent, Place(service.url, _MODEL, place.home), session, service)
        click.echo(f"{'FAILED' if failed else 'ok    '} {name} {agent.version} {ability}{''.join(failed)}")
        works = works and not failed
    return works


@contextmanager
def _scripted(folder: Path, session: AgentSession) -> Iterator[Service]:
    """Serve a model that replies by a session's rules."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (replies := folder / "replies.json").write_text(json.dumps(session.rules))
    model = str(write_model(folder / "model"))
    options = (
        *_WORKER,
        "--sim-replies",
        str(replies),
        "--served-model-name",
        _MODEL,
        f"--served-model-name=gpt-{_MODEL}",
    )
    with (
        simulated_worker(folder, model, *options) as (worker, address),
        coordinator(folder, [address], *PARSERS, *_TEMPLATE, start_timeout_s=120) as (process, url),
    ):
        yield Service(process, url, [worker], [address])


def _run(name: str, agent: Agent, place: Place, session: AgentSession, service: Service) -> list[str]:
    for file, content in session.files.items():
        place.write(f"work/{file}", content)
    programs = bin_of(name, agent)
    command = list(agent.command(place, task_of(name, session.ability)))
    environment = dict(agent.environment(place))
    if session.compaction is not None:
        command[2:2] = session.compaction.arguments
        environment |= session.compaction.environment
        for file, content in session.compaction.files.items():
            place.write(file, content)
    running = AgentProcess(place, [str(programs / command[0]), *command[1:]], environment)
    try:
        if session.is_cut:
            return _cut(running, service)
        code = running.wait(_TIMEOUT_S)
    finally:
        running.stop()
    failed = failures_of(session, place.work, code, running.output)
    if agent.names_session and not _CONTINUED.search(httpx.get(f"{service.url}/metrics").text):
        failed.append("no prompt of its session is known to continue another")
    return [f"\n  {each}" for each in failed] + ([running.output[-3000:]] if failed else [])


def _cut(running: AgentProcess, service: Service) -> list[str]:
    """Interrupt an agent in the middle of a reply; return what is wrong then."""
    try:
        service.wait_slots(1, timeout_s=_TIMEOUT_S)
        running.interrupt()
        service.wait_slots(0)
    except AssertionError as error:
        return [f"\n  {error}\n{running.output[-3000:]}"]
    return []


if __name__ == "__main__":
    run_agents()
