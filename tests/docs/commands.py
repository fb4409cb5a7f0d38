"""The commands that README.md, docs/, the examples and the chart show."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "examples/README.md")),
    ROOT / "deploy" / "k8s" / "tokenwire" / "README.md",
    *sorted(ROOT.glob("docs/**/*.md")),
]
SHELLS = {"sh", "bash", "shell", "console"}
"""The names of blocks of commands."""
OTHERS = {"", "json", "nginx", "python", "toml", "yaml"}
"""Those of other blocks; the ones without a name show what commands print."""
_BLOCK = re.compile(r"^ *(?P<fence>`{3,}|~{3,})(?P<name>.*)\n(?P<text>(?:.*\n)*?) *(?P=fence) *$", re.MULTILINE)
_OTHER_PROGRAMS = (
    r"(?:aiperf|apt(?:-get)?|awk|bash|brew|cargo|cat|chmod|chown|claude|codex|conda|cp|crictl|curl|dnf|docker(?:-compose)?"
    r"|export|find|genai-perf|gh|git|grep|grpcurl|hadolint|helm|hf|huggingface-cli|install|jq|journalctl|kill|killall"
    r"|kubectl|ls|mkdir|mv|nc|node|npm|npx|nsys|openssl|perf|pgrep|pip3?|pipx|pkill|podman(?:-compose)?|poetry|prometheus"
    r"|promtool|ps|pytest|redis-cli|rm|rsync|scp|sed|ssh|sudo|sysctl|systemctl|systemd-\w+|tail|tar|tee|ulimit|uvx?|vllm"
    r"|watch|wget|yum)"
)
_INLINE = re.compile(
    r"`((?:make|tokenwire|python3? -m|\.venv/bin/\S+)(?:\s[^`]*)?|(?:curl|node|nvidia-smi|python3?|sh)\s[^`]+"
    rf"|{_OTHER_PROGRAMS}\s+[^\s`]+\s[^`]*)`"  # not `helm upgrade`, which only names what is done
)
_COMMAND = rf"(?:\$|make|tokenwire (?:serve|coordinator|worker|chat)|python3?|\.venv/bin/\S+|{_OTHER_PROGRAMS})\s"
_FIRST_WORD = re.compile(rf"^ *{_COMMAND}", re.MULTILINE)
_OUTSIDE = re.compile(rf"^[ ]*>\s*(?:`{{3}}|~{{3}})|^\s*\n(?:[ ]{{4,}}|\t|[ ]*>)\s*{_COMMAND}", re.MULTILINE)
"""A block of commands that has no fence of its own: indented, or in a quotation."""
_PROMPT = re.compile(r"^ *\$ ", re.MULTILINE)
_COMMENT = re.compile(r"\s+#\s.*$")
_ASSIGNMENT = re.compile(r"[A-Za-z_]+=")
_SUBSTITUTION = re.compile(r"\$\(([^()]+)\)|`([^`]+)`")
_ENDS = {"|", "||", "&&", ";", "&"}
_KEYWORDS = {"do", "then", "else"}


@dataclass(frozen=True)
class Command:
    """One command of a page, which may be several: a pipe, a list."""

    page: str
    text: str
    """As a shell reads it, over several lines where it is quoted so."""
    inline: bool = False
    """Named within a sentence or a table, perhaps without its arguments."""

    @property
    def normal(self) -> str:
        """The text without what makes no difference: a comment, indentation."""
        return " ".join(_COMMENT.sub("", self.text).split())

    @property
    def parts(self) -> list[list[str]]:
        """The program and its arguments of each part, without variables before them."""
        found: list[list[str]] = [[]]
        for text in (self.text, *map("".join, _SUBSTITUTION.findall(self.text))):
            lexer = shlex.shlex(text, posix=True, punctuation_chars="|&;")
            lexer.whitespace_split = True
            for word in lexer:
                if word in _ENDS:
                    found.append([])
                elif found[-1] or not (_ASSIGNMENT.match(word) or word in _KEYWORDS):
                    found[-1].append(word)
            found.append([])
        return [words for words in found if words]

    @property
    def words(self) -> list[str]:
        """The first part; none of a variable's assignment."""
        return next(iter(self.parts), [])

    @property
    def program(self) -> str:
        """The name of the first part's program; empty without one."""
        return Path(self.words[0]).name if self.words else ""


def commands() -> Iterator[Command]:
    """Yield all commands in blocks, page by page."""
    for path in PAGES:
        page = str(path.relative_to(ROOT))
        yield from (each for each in commands_of(page, path.read_text()) if not each.inline)


def commands_of(page: str, markdown: str) -> Iterator[Command]:
    """Yield the commands of a page, those within sentences last. Raises ValueError for a block of an unknown kind."""
    for block in _BLOCK.finditer(markdown):
        name, text = block["name"].strip(), block["text"]
        prose = name in OTHERS and not (_PROMPT.search(text) or (not name and _FIRST_WORD.search(text)))
        if not (prose or name in SHELLS):
            raise ValueError(f"{page}: a block named {name!r} that may have commands")
        if name in SHELLS:
            yield from (Command(page, each) for each in _commands_of(_typed(text)))
    rest = _BLOCK.sub("", markdown)
    if outside := _OUTSIDE.search(rest):
        raise ValueError(f"{page}: commands without a fence that names a shell: {outside[0].strip()}")
    for found in _INLINE.finditer(rest):
        yield Command(page, " ".join(found[1].split()), inline=True)


def _typed(block: str) -> str:
    """Return what is typed: the lines with a prompt, where there are some."""
    typed = [line for line in block.splitlines(keepends=True) if _PROMPT.match(line)]
    return "".join(_PROMPT.sub("", line) for line in typed) or block


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
