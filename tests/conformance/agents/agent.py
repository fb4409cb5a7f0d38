"""What describes an agent: its package, how it is started, and how its tools are called."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Call = Mapping[str, Any] | str
"""A tool call as models write it: `name` and `arguments`, or the text that an agent without tools reads as one."""


@dataclass(frozen=True)
class Place:
    """Where an agent runs, and whom it asks."""

    url: str
    model: str
    home: Path
    """Its own; it works in a folder below, and writes its configuration elsewhere."""

    @property
    def work(self) -> Path:
        """The folder of its session."""
        return self.home / "work"

    def path(self, name: str) -> str:
        """Return the path of a file of the session."""
        return str(self.work / name)

    def write(self, name: str, content: str) -> None:
        """Write a file of its configuration, or of the session."""
        path = self.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)


def tool_use(name: str, **arguments: object) -> Call:
    """Return a tool call."""
    return {"name": name, "arguments": arguments}


@dataclass(frozen=True)
class Tools:
    """An agent's own tools."""

    read: Callable[[str], Call]
    """Reads a file."""
    edit: Callable[[str, str, str], Call]
    """Replaces a text in a file by another one."""
    run: Callable[[str], Call]
    """Runs a command."""
    fail: str
    """What the agent says of an edit whose text is not there: a regular expression."""
    nest: Callable[[str], Call] | None = None
    """Gives a prompt to an agent of its own, if it has any."""
    wait: Callable[[str], Call] | None = None
    """Waits for such an agent by its id, if giving it a prompt does not."""
    is_parallel: bool = True
    """Whether it takes several calls at once."""
    finish: Callable[[str], Call] | None = None
    """Ends the session with a text, if a reply without calls does not."""


@dataclass(frozen=True)
class Agent:
    """One agent."""

    package: str
    """As npm (`name@version`) or pip (`name==version`) takes it."""
    command: Callable[[Place, str], Sequence[str]]
    """Its program and arguments, for a prompt; may write its configuration."""
    tools: Tools
    environment: Callable[[Place], Mapping[str, str]] = field(default=lambda place: {})
    compact: "Compaction | None" = None
    """How it compacts a long session, if it does."""
    compact_by_server: "Compaction | None" = None
    """How it lets the server do that, if it does."""

    names_session: bool = False
    """Whether its requests name their session."""

    @property
    def is_npm(self) -> bool:
        """Whether it is npm's."""
        return "==" not in self.package

    @property
    def version(self) -> str:
        """Its version."""
        return self.package.replace("==", "@").rpartition("@")[2]


@dataclass(frozen=True)
class Compaction:
    """How a session is compacted."""

    asks: str
    """What the agent says when it asks for a summary: a regular expression."""
    arguments: Sequence[str] = ()
    """What makes it compact early."""
    environment: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    """Its configuration for that, in its home."""
    summary: str = "{}"
    """The summary in the form that it expects."""
    is_between_messages: bool = False
    """Whether it compacts only when a person's message is answered."""
    filler_chars: int = 60_000
    """What a command has to print for it."""


def model_output(*calls: Call, text: str = "") -> str:
    """Return what a model writes: reasoning, text and calls."""
    parts = [each if isinstance(each, str) else f"<tool_call>\n{json.dumps(each)}\n</tool_call>" for each in calls]
    return "<think>\nLet me see.\n</think>\n\n" + "\n".join([text, *parts] if text else parts)
