"""Writes docs/reference/parsers.md: which of vLLM's parsers contradict themselves, each with a minimal case.

python -m tests.coordinator.parsing.parsers_page
"""

import json
import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.coordinator.parsing.chunkings import (
    UNTESTED,
    Subject,
    all_settings,
    name_of,
    subject,
)
from tests.coordinator.parsing.replies import replies
from tokenwire.coordinator.parsing.agreement import agreed
from tokenwire.coordinator.parsing.message import RawMessage

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "parsers.md"
_INTRODUCTION = """# Parsers

*For operators who choose parsers.* `python -m tests.coordinator.parsing.parsers_page` writes this page, and a test
checks it. [Tools and reasoning](api.md#tools-and-reasoning) says how replies are kept the same, streamed or not."""
_CONTRADICT = """## Parsers that contradict themselves

Each of these parsers of vLLM 0.32 makes something else of a reply token by token than of the whole. Each has the
replies of the test with which it does, the shortest part of the first of them that shows it, what vLLM streams of
that, and what it returns without streaming; replies and tools are those of `tests/coordinator/parsing/replies.py`.
*Held*: a stream ends before the first call, and has the rest at its end."""
_CASE = re.compile(r"^### (.*?)( \(held\))?\n\n(.*?):\n\n```json\n(.*?)\n```", re.MULTILINE | re.DOTALL)


def main() -> None:
    """Write the page."""
    logging.disable(logging.CRITICAL)
    PAGE.write_text(parsers_page())


def parsers_page() -> str:
    """Return the page with cases that are shrunk anew."""
    cases, agreeing = [], []
    for settings in all_settings():
        each = subject(name_of(settings))
        found = contradicted(each)
        if not found:
            agreeing.append(name_of(settings))
            continue
        case = case_of(each, minimal(each, found[0]))
        heading = f"### {name_of(settings).capitalize()}{' (held)' if each.held else ''}"
        cases.append(f"{heading}\n\n{', '.join(found)}:\n\n```json\n{case}\n```")
    others = "## Parsers that agree with themselves\n\nIn all replies of the test: " + ", ".join(agreeing) + "."
    untested = "## Parsers that are not tested\n\n" + "\n".join(f"* `{name}`: {why}." for name, why in UNTESTED.items())
    return "\n\n".join([_INTRODUCTION, _CONTRADICT, *cases, others, untested]) + "\n"


def contradicts(subject: Subject, text: str) -> bool:
    """Return whether vLLM's own stream contradicts its whole message."""
    stream, whole = subject.of_vllm(text)
    if isinstance(stream, str) or isinstance(whole, str):
        return isinstance(stream, str) != isinstance(whole, str)
    return agreed(stream, whole) is not whole


def shrunk(text: str, fails: Callable[[str], bool]) -> str:
    """Return a part of a text that still fails, from which no piece can be taken."""
    size = len(text) // 2
    while size:
        start = 0
        while start < len(text):
            shorter = text[:start] + text[start + size :]
            if shorter and fails(shorter):
                text = shorter
            else:
                start += size
        size //= 2
    return text


def as_shown(message: RawMessage | str) -> Any:
    """Return a message as JSON shows it, without ids."""
    if isinstance(message, str):
        return {"error": message}
    reasoning, content, calls = message
    parts = {"reasoning": reasoning, "content": content, "calls": [[call.name, call.arguments] for call in calls]}
    return {name: part for name, part in parts.items() if part}


def contradicted(each: Subject) -> list[str]:
    """Return the names of the replies of which a parser's stream contradicts its whole message."""
    return [name for name, text in replies(each.markup).items() if contradicts(each, text)]


def minimal(each: Subject, name: str) -> str:
    """Return a shrunk reply."""
    return shrunk(replies(each.markup)[name], lambda part: contradicts(each, part))


def case_of(each: Subject, text: str) -> str:
    """Return a case as JSON."""
    stream, whole = each.of_vllm(text)
    parts = {"reply": text, "streamed": as_shown(stream), "not streamed": as_shown(whole)}
    lines = [f"  {json.dumps(name)}: {json.dumps(part, ensure_ascii=False)}" for name, part in parts.items()]
    return "{\n" + ",\n".join(lines) + "\n}"


def listed_parsers() -> dict[str, tuple[bool, list[str], str]]:
    """Return whether a parser is held, the replies that show why, and its case, by its name."""
    return {name: (bool(held), found.split(", "), case) for name, held, found, case in _CASE.findall(PAGE.read_text())}


def case_reply(case: str) -> Any:
    """Return the reply of a case."""
    return json.loads(case)["reply"]


if __name__ == "__main__":
    main()
