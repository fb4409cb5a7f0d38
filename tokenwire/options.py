"""Declares command line options in the fields of the settings that they set: once, for every use."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import KW_ONLY, MISSING, Field, dataclass, field, fields, is_dataclass
from enum import IntEnum, StrEnum
from pathlib import Path
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from tokenwire.errors import InvalidRequest

T = TypeVar("T")

_KEY = "option"
REQUIRED: Any = ...
"""In place of a default, where the option must be given."""


class Section(StrEnum):
    """Headings of help, in their order."""

    GENERAL = "Options"
    LINK = "Link between coordinators and workers"
    FAILOVER = "Lost workers"
    HTTP = "HTTP server"
    ADMISSION = "Access and queue"
    ROUTING = "Choosing workers"
    TEMPLATES = "Chat templates"
    PARSERS = "Tools and reasoning"
    HISTORY = "Conversations"
    REPLIES = "Replies"
    TRANSFERS = "Prefill and decode"
    ADMIN = "Administration"
    LOGS = "Logs and traces"
    SIMULATION = "Simulated engine (--engine sim)"


class Unit(IntEnum):
    """How many bytes one of an option's value stands for; 0: its field holds the value itself."""

    NONE = 0
    KiB = 2**10
    MiB = 2**20


@dataclass(frozen=True, slots=True)
class Bounds:
    """Values that a number may have, in the option's unit. Infinity and NaN are none."""

    at_least: float | None = None
    above: float | None = None
    at_most: float | None = None

    def __contains__(self, value: float) -> bool:
        return (
            math.isfinite(value)
            and (self.at_least is None or value >= self.at_least)
            and (self.above is None or value > self.above)
            and (self.at_most is None or value <= self.at_most)
        )

    def __str__(self) -> str:
        if self.at_least is not None and self.at_most is not None:
            return f"between {self.at_least:g} and {self.at_most:g}"
        return f"above {self.above:g}" if self.at_least is None else f"at least {self.at_least:g}"


@dataclass(frozen=True, slots=True)
class Option:
    """How a field is set from the command line and from the environment."""

    flag: str
    """`--name`; `--name/--no-name`, where both can be said; `NAME` for an argument; empty: only the variable is read.
    The flag of a bool sets the opposite of the default."""
    help: str = ""
    section: Section = Section.GENERAL
    _: KW_ONLY
    variable: str = ""
    """The environment variable, where it is not TOKENWIRE_<FLAG>."""
    unit: Unit = Unit.NONE
    bounds: Bounds | None = None
    default_text: str = ""
    """The default in words, where the field's own says nothing."""
    default_with: tuple[str, object] | None = None
    """A flag, and the default where that is given."""
    path: Literal["", "any", "file", "existing file", "existing directory"] = ""
    contents: str = ""
    """What the file is that the option names, where the field is what it holds: a secret, or else in a variable."""
    repeated: bool = False
    """Whether it may be given several times, where the field's type does not say so."""
    parse: Callable[..., object] | None = None
    """Makes the field's value of what was given. Raises ValueError or InvalidRequest."""
    hidden: bool = False
    """Whether it is for tokenwire's own processes."""

    @property
    def name(self) -> str:
        """What it is called in messages, and by which its value is found."""
        return self.flag.partition("/")[0] or self.variable

    @property
    def is_flag(self) -> bool:
        """Whether its value stands behind a flag; else it is an argument, or comes from the environment."""
        return self.flag.startswith("-")

    @property
    def environment_variable(self) -> str:
        """The variable that sets it; empty: none."""
        if self.variable or self.hidden:
            return self.variable
        return f"TOKENWIRE_{self.name.lstrip('-').replace('-', '_').upper()}"

    @property
    def secret_variable(self) -> str:
        """The variable that may hold what the file would."""
        return self.environment_variable.removesuffix("_FILE") if self.contents else ""


@dataclass(frozen=True, slots=True)
class Declared:
    """An option, and what its field says of it."""

    option: Option
    kind: type
    """Type of a value as it is given: bool, int, float, str or Path."""
    choices: tuple[str, ...]
    """The only values, if not empty."""
    repeated: bool
    default: object
    """As it would be given; None: nothing."""
    required: bool

    @property
    def is_switch(self) -> bool:
        """Whether its flag stands alone."""
        return self.kind is bool


def option(default: T, declaration: Option) -> T:
    """Return a dataclass field that an option sets. Secrets are left out of the dataclass's repr."""
    made: T = _field(default, declaration, shown=bool(declaration.flag) and not declaration.contents)
    return made


def shared(default: T, name: str) -> T:
    """Return a dataclass field that takes the value of an option that another field declares."""
    made: T = _field(default, name, shown=True)
    return made


def _field(default: Any, metadata: object, shown: bool) -> Any:
    about = {_KEY: metadata}
    if default is REQUIRED:
        return field(metadata=about, repr=shown)
    if isinstance(default, dict):
        return field(default_factory=default.copy, metadata=about, repr=shown)
    return field(default=default, metadata=about, repr=shown)


def option_of(of: "Field[Any]") -> Option | None:
    """Return the option that a field declares."""
    found = of.metadata.get(_KEY)
    return found if isinstance(found, Option) else None


def option_name(of: "Field[Any]") -> str:
    """Return the name of the option that sets a field, declared here or elsewhere; empty: none does."""
    found = of.metadata.get(_KEY, "")
    return found.name if isinstance(found, Option) else str(found)


def nested(settings: type) -> Mapping[str, type]:
    """Return the fields that are settings of their own, with their types."""
    hints = get_type_hints(settings)
    return {
        each.name: hints[each.name]
        for each in fields(settings)
        if not option_name(each) and is_dataclass(hints[each.name]) and isinstance(hints[each.name], type)
    }


def declared(settings: type) -> dict[str, Declared]:
    """Return all options of a settings dataclass and of those within it, by their names."""
    return {each.option.name: each for each in _walk(settings)}


def _walk(settings: type) -> Iterator[Declared]:
    hints, parts = get_type_hints(settings), nested(settings)
    for each in fields(settings):
        declaration = option_of(each)
        if declaration is not None:
            yield _resolve(declaration, hints[each.name], each)
        elif each.name in parts:
            yield from _walk(parts[each.name])


def _resolve(declaration: Option, annotation: object, of: "Field[Any]") -> Declared:
    one, repeated = _element(_without_none(annotation))
    choices = get_args(one) if get_origin(one) is Literal else ()
    kind: type = float if declaration.unit else Path if declaration.path else str
    if kind is str and one in (bool, int, float):
        assert isinstance(one, type)
        kind = one
    repeated = declaration.repeated or (repeated and (bool(choices) or one is kind))
    default: object = of.default
    if declaration.unit and isinstance(default, int):
        default = default / declaration.unit
    required = of.default is MISSING and of.default_factory is MISSING
    return Declared(declaration, kind, choices, repeated, default if isinstance(default, kind) else None, required)


def _without_none(annotation: object) -> object:
    if get_origin(annotation) in (Union, UnionType):
        (annotation,) = (each for each in get_args(annotation) if each is not type(None))
    return annotation


def _element(annotation: object) -> tuple[object, bool]:
    """Return the type of one value, and whether there may be several."""
    return (get_args(annotation)[0], True) if get_origin(annotation) is tuple else (annotation, False)


def check_bounds(settings: Any) -> None:
    """Check the numbers that options have set. Raises InvalidRequest, which names the flag."""
    for each in fields(settings):
        declaration = option_of(each)
        value = getattr(settings, each.name)
        if declaration is None or declaration.bounds is None or value is None:
            continue
        given = value / declaration.unit if declaration.unit else value
        if given not in declaration.bounds:
            raise InvalidRequest(f"{declaration.name} must be {declaration.bounds}, got {given:g}")
