"""Declares command line options once, in the fields of the settings dataclasses that they set."""

import math
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from dataclasses import KW_ONLY, MISSING, Field, dataclass, field, fields, is_dataclass
from enum import IntEnum, StrEnum
from functools import partial
from pathlib import Path
from types import EllipsisType, UnionType
from typing import TYPE_CHECKING, Final, Generic, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from tokenwire.errors import InvalidRequest

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

_KEY = "option"
REQUIRED: Final = ...
"""Default of a required option."""


class Section(StrEnum):
    """Headings of help, in their order."""

    GENERAL = "Options"
    PEER_AUTH = "Peer authentication"
    FAILOVER = "Lost workers"
    HTTP = "HTTP server"
    ADMISSION = "Access and queue"
    ROUTING = "Choosing workers"
    TEMPLATES = "Chat templates"
    PARSERS = "Tools and reasoning"
    MEDIA = "Pictures"
    HISTORY = "Conversations"
    REPLIES = "Replies"
    TRANSFERS = "Prefill and decode"
    ADMIN = "Administration"
    LOGS = "Logs and traces"
    SIMULATION = "Simulated engine (--engine sim)"
    CHAT = "Chat in the terminal"


class Unit(IntEnum):
    """Bytes per unit of an option's value; 0: the field has the value itself."""

    NONE = 0
    KiB = 2**10
    MiB = 2**20


@dataclass(frozen=True, slots=True)
class Bounds:
    """Range of a number, in the option's unit; infinity and NaN are never allowed."""

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
class Option(Generic[T_co]):
    """The command line option and environment variable of a field of type T_co."""

    flag: str
    """`--name`; `--name/--no-name` for a switch with both; `NAME` for an argument; empty: only the variable is read.
    The flag of a bool sets the opposite of the default."""
    help: str = ""
    section: Section = Section.GENERAL
    _: KW_ONLY
    variable: str = ""
    """The environment variable, if it is not TOKENWIRE_<FLAG>."""
    unit: Unit = Unit.NONE
    bounds: Bounds | None = None
    default_text: str = ""
    """The default in words, if the field's own is not informative."""
    default_with: tuple[str, T_co] | None = None
    """A flag, and the default if that flag is given."""
    path: Literal["", "any", "file", "existing file", "existing directory"] = ""
    contents: str = ""
    """Description of the option's file if the field is its contents: a secret, which a variable may hold instead."""
    repeated: bool = False
    """Whether it may be given several times, if the field's type does not imply that."""
    parse: Callable[..., T_co] | None = None
    """Converts the given value to the field's. Raises ValueError or InvalidRequest."""
    hidden: bool = False
    """Whether only tokenwire's own processes use it."""
    apart: bool = False
    """Whether it is only for a coordinator or a worker that is started separately, not for `tokenwire serve`."""

    @property
    def name(self) -> str:
        """Name in messages, and key of the value."""
        return self.flag.partition("/")[0] or self.variable

    @property
    def is_flag(self) -> bool:
        """Whether it has a flag; else it is an argument, or set only by the environment."""
        return self.flag.startswith("-")

    @property
    def environment_variable(self) -> str:
        """The environment variable; empty: none."""
        if self.variable or self.hidden:
            return self.variable
        return f"TOKENWIRE_{self.name.lstrip('-').replace('-', '_').upper()}"

    @property
    def secret_variable(self) -> str:
        """The variable that may hold the file's contents; empty: none."""
        return self.environment_variable.removesuffix("_FILE") if self.contents else ""


@dataclass(frozen=True, slots=True)
class Declared:
    """An option with the properties of its field."""

    option: Option[object]
    kind: type
    """Type of a given value: bool, int, float, str or Path."""
    choices: tuple[str, ...]
    """The allowed values; empty: any."""
    repeated: bool
    default: object
    """The default as it would be given; None: none."""
    required: bool

    @property
    def is_switch(self) -> bool:
        """Whether its flag has no value."""
        return self.kind is bool


def option(default: T | EllipsisType, declaration: Option[T]) -> T:
    """Return a dataclass field that an option sets. Secrets are excluded from the dataclass's repr."""
    return _field(default, declaration, shown=bool(declaration.flag) and not declaration.contents)


def shared(default: T, name: str) -> T:
    """Return a dataclass field that is set by an option of another field."""
    return _field(default, name, shown=True)


def _field(default: T | EllipsisType, metadata: object, shown: bool) -> T:
    about = {_KEY: metadata}
    if isinstance(default, EllipsisType):
        required: T = field(metadata=about, repr=shown)
        return required
    if isinstance(default, dict):
        return field(default_factory=partial(copy, default), metadata=about, repr=shown)
    return field(default=default, metadata=about, repr=shown)


def option_of(of: "Field[object]") -> Option[object] | None:
    """Return the option that a field declares."""
    found = of.metadata.get(_KEY)
    return found if isinstance(found, Option) else None


def option_name(of: "Field[object]") -> str:
    """Return the name of the option that sets a field, declared here or elsewhere; empty: none."""
    found = of.metadata.get(_KEY, "")
    return found.name if isinstance(found, Option) else str(found)


def name_of(settings: type, field_name: str) -> str:
    """Return the name of the option that sets a field. Raises ValueError if there is no such field or option."""
    (name,) = (option_name(each) for each in fields(settings) if each.name == field_name and option_name(each))
    return name


def nested(settings: type) -> Mapping[str, type]:
    """Return the fields that are nested settings, with their types."""
    hints = get_type_hints(settings)
    return {
        each.name: hints[each.name]
        for each in fields(settings)
        if not option_name(each) and is_dataclass(hints[each.name]) and isinstance(hints[each.name], type)
    }


def declared(settings: type) -> dict[str, Declared]:
    """Return all options of a settings dataclass and of nested ones, by name."""
    return {each.option.name: each for each in _walk(settings)}


def _walk(settings: type) -> Iterator[Declared]:
    hints, parts = get_type_hints(settings), nested(settings)
    for each in fields(settings):
        declaration = option_of(each)
        if declaration is not None:
            yield _resolve(declaration, hints[each.name], each)
        elif each.name in parts:
            yield from _walk(parts[each.name])


def _resolve(declaration: Option[object], annotation: object, of: "Field[object]") -> Declared:
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


def check_bounds(settings: "DataclassInstance") -> None:
    """Check the ranges of options. Raises InvalidRequest that names the flag."""
    for each in fields(settings):
        declaration = option_of(each)
        value = getattr(settings, each.name)
        if declaration is None or declaration.bounds is None or value is None:
            continue
        given = value / declaration.unit if declaration.unit else value
        if given not in declaration.bounds:
            raise InvalidRequest(f"{declaration.name} must be {declaration.bounds}, got {given:g}")
