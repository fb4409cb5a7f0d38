"""The commands that README.md, docs/, the examples and the chart show."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "examples" / "README.md",
    ROOT / "deploy" / "k8s" / "tokenwire" / "README.md",
    *sorted(ROOT.glob("docs/**/*.md")),
]
_BLOCK = re.compile(r"^ *```sh\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
_ASSIGNMENT = re.compile(r"[A-Z_]+=")


@dataclass(frozen=True)
class Command:
    """One command of a page."""

    page: str
    text: str
    """As a shell reads it, over several lines where it is quoted so."""

    @property
    def words(self) -> list[str]:
        """The program and its arguments, without variables before them and what it is piped to."""
        words = shlex.split(self.text, comments=True)
        while _ASSIGNMENT.match(words[0]):
            del words[0]
        return words[: words.index("|")] if "|" in words else words

    @property
    def program(self) -> str:
        """The program's name."""
        return Path(self.words[0]).name


def commands() -> Iterator[Command]:
    """Yield all commands in `sh` blocks, page by page."""
    for path in PAGES:
        page = str(path.relative_to(ROOT))
        for block in _BLOCK.findall(path.read_text()):
            yield from (Command(page, text) for text in _commands_of(block))


def _commands_of(block: str) -> Iterator[str]:
    text = ""
    for line in block.splitlines():
        text += line
        if line.endswith("\\"):
            text = text[:-1]
            continue
        try:
            words = shlex.split(text, comments=True)
        except ValueError:  # a quotation goes on
            text += "\n"
            continue
        if words:
            yield text
        text = ""
