"""One attack: what a hostile client sends, how it sends and reads, and what it sent before."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from tests.adversary.values import Value, value_of

Sending = Literal["whole", "in pieces", "never finished"]
Reading = Literal["read", "stand still", "leave at once"]

_WITHOUT_MODEL = ("/sessions", "/admin")


@dataclass(frozen=True)
class Attack:
    """What a hostile client does."""

    name: str
    path: str
    fields: Mapping[str, Value] = field(default_factory=dict)
    """All fields of the body but the model, with dots before those inside of others."""
    sending: Sending = "whole"
    reading: Reading = "read"
    copies: int = 1
    """How many of it are sent at once."""
    method: str = "POST"
    headers: Mapping[str, str] = field(default_factory=dict)
    before: tuple["Attack", ...] = ()
    """What is sent before, one after the other, and answered: it stores what the attack is on."""
    beside: "Attack | None" = None
    """What another client sends while it runs, which is to be served."""

    def body(self, model: str) -> bytes:
        """Return the request's body."""
        if self.method in ("GET", "DELETE"):
            return b""
        has_none = "model" in self.fields or self.path.startswith(_WITHOUT_MODEL)
        names = {} if has_none else {"model": value_of(model, model)}
        return _object(names | dict(self.fields)).encode()


def _object(values: Mapping[str, Value]) -> str:
    inner: dict[str, dict[str, Value]] = {}
    parts = []
    for name, value in values.items():
        outer, dot, rest = name.partition(".")
        if dot:
            inner.setdefault(outer, {})[rest] = value
        else:
            parts.append(f'"{name}":{value.json_text()}')
    parts += [f'"{name}":{_object(within)}' for name, within in inner.items()]
    return "{" + ",".join(parts) + "}"
