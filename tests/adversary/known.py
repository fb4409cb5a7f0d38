"""Causes of violations that are known and not mended yet; each is in the list until it is. Other tests avoid them."""

from collections.abc import Callable
from dataclasses import dataclass

from tests.adversary.draws import Attack
from tests.adversary.values import MIB, Value


@dataclass(frozen=True)
class KnownCause:
    """What makes some attacks violate."""

    name: str
    figure: str
    """What was measured."""
    rows: tuple[str, ...]
    """Named attacks that violate by it."""
    has: Callable[[Attack], bool]
    """Whether an attack may violate by it."""


def _count(attack: Attack, *names: str) -> int:
    """Return how many of something its fields have, by which the names of their values begin."""
    return max([_number(value.name.partition(" ")[0]) for value in _given(attack, *names)], default=1)


def _number(text: str) -> int:
    digits = text.replace(",", "")
    return int(digits) if digits.isdigit() else 1


def _given(attack: Attack, *names: str) -> list[Value]:
    return [value for name, value in attack.fields.items() if name.rpartition(".")[2] in names]


def _large_bodies(attack: Attack) -> bool:
    if attack.copies == 1:
        return False
    size = sum(len(value.json_text()) for value in attack.fields.values() if not value.is_small)
    return attack.copies * size > 8 * MIB


def _long_echo(attack: Attack) -> bool:
    return bool(_given(attack, "echo")) and _count(attack, "n") > 16


KNOWN = (
    KnownCause("an echo, once a choice and in one frame", "0.64 s", ("echoed text, streamed",), _long_echo),
    # Seed 13 has large objects in chats, 292 in arguments for the engine.
    KnownCause("several large objects, dumped at once", "279 MB; 0.6 s", (), _large_bodies),
)
