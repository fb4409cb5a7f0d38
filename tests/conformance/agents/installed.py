"""Agents from the registries of npm and PyPI, each installed once into tests/.cache."""

import subprocess
from pathlib import Path

from tests.cache import CACHE, making
from tests.conformance.agents.agent import Agent
from tests.conformance.clients.environments import python_with


def bin_of(name: str, agent: Agent) -> Path:
    """Return the folder of an agent's programs, installed if necessary."""
    folder = CACHE / "agents" / name
    if not agent.is_npm:
        return python_with(folder, [agent.package]).parent
    with making(folder):
        made = folder / "package.txt"
        if not made.is_file() or made.read_text() != agent.package:
            folder.mkdir(parents=True, exist_ok=True)
            npm = ["npm", "install", "--prefix", str(folder), "--no-audit", "--no-fund", "--silent", agent.package]
            subprocess.run(npm, check=True, timeout=600)
            made.write_text(agent.package)
    return folder / "node_modules" / ".bin"
