"""Rules that script replies by what was asked, and the file that they are read from.

A JSON list; the first rule whose `prompt`, a regular expression, is found in the prompt's text gives the reply:

    [{"prompt": "made-by-42", "reply": "Done."}, {"prompt": "name is (?P<name>\\\\w+)", "reply": "Hello {{name}}."}]

`{{name}}` in a reply is the text of the expression's group of that name.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

_MARK = re.compile(r"\{\{(\w+)\}\}")
_KEYS = {"prompt", "reply"}


@dataclass(frozen=True, slots=True)
class ReplyRule:
    """The reply to prompts in which an expression is found."""

    prompt: str
    reply: str

    def __post_init__(self) -> None:
        if not self.head and self.reply:
            raise ValueError(
                f"the reply {self.reply!r} must begin with text of its own: a continued one is known by it"
            )

    @property
    def head(self) -> str:
        """What the reply begins with, whatever the groups are."""
        return self.reply[: next((mark.start() for mark in self._marks()), len(self.reply))]

    @property
    def is_fixed(self) -> bool:
        """Whether the reply has no groups in it."""
        return not self._marks()

    def matcher(self) -> Callable[[str], str | None]:
        """Return a function that returns the reply to a prompt, None if the rule is not for it."""
        pattern = re.compile(self.prompt)

        def reply_to(text: str) -> str | None:
            match = pattern.search(text)
            if match is None:
                return None
            groups = match.groupdict("")
            return _MARK.sub(lambda mark: groups.get(mark[1], mark[0]), self.reply)

        return reply_to

    def _marks(self) -> list[re.Match[str]]:
        names = re.compile(self.prompt).groupindex
        return [mark for mark in _MARK.finditer(self.reply) if mark[1] in names]


def read_reply_rules(path: Path) -> tuple[ReplyRule, ...]:
    """Read a file of rules. Raises ValueError with a message that names the mistake."""
    try:
        rules = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} is not JSON: {error}") from error
    if not isinstance(rules, list) or not rules:
        raise ValueError(f"{path} must hold a list of rules, at least one")
    return tuple(_rule(number, rule, path) for number, rule in enumerate(rules, 1))


def _rule(number: int, rule: object, path: Path) -> ReplyRule:
    if not isinstance(rule, dict) or rule.keys() != _KEYS or not all(isinstance(each, str) for each in rule.values()):
        raise ValueError(f'rule {number} of {path} must be {{"prompt": "expression", "reply": "text"}}, not {rule!r}')
    try:
        return ReplyRule(**rule)
    except (ValueError, re.error) as error:
        raise ValueError(f"rule {number} of {path}: {error}") from error
