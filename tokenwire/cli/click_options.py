"""Converts declared options to click's options, their values to settings, and values back to arguments."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import TypeVar

import click
from click.core import ParameterSource

from tokenwire.cli.main import SectionedCommand, SectionedOption
from tokenwire.errors import InvalidRequest
from tokenwire.options import Declared, declared, nested, option_name

T = TypeVar("T")
Values = Mapping[str, object]
"""Given values, by the names of options."""


@dataclass(frozen=True, slots=True)
class Given:
    """The input of a command."""

    values: Values
    engine_arguments: tuple[str, ...] = ()
    """Arguments after `--`."""


def options_command(
    summary: str, options: Mapping[str, Declared], epilog: str | None = None
) -> Callable[[Callable[[Given], None]], click.Command]:
    """Return a decorator that makes a function a command with these options, called with their values."""
    return lambda run: _OptionsCommand(run, summary, options, epilog)


def build(settings: type[T], values: Values, environment: Mapping[str, str] = os.environ) -> T:
    """Return settings of the given values, with defaults for others. Raises an InvalidRequest that names the option."""
    found = ((name, _value(each, values, environment)) for name, each in declared(settings).items())
    return _construct(settings, {name: value for name, value in found if value is not None})


def arguments(options: Mapping[str, Declared], values: Values) -> list[str]:
    """Return command line arguments that pass these values to another command, if it has the options."""
    return [
        argument for name, value in values.items() if name in options for argument in _argument(options[name], value)
    ]


class _OptionsCommand(SectionedCommand):
    def __init__(
        self, run: Callable[[Given], None], summary: str, options: Mapping[str, Declared], epilog: str | None
    ) -> None:
        self._run = run
        shown = sorted((each for each in options.values() if each.option.flag), key=lambda each: each.option.is_flag)
        self._options = {_parameter_name(each): each for each in shown}
        parameters = [_parameter(name, each) for name, each in self._options.items()]
        about = [f"{each.option.flag}: {each.option.help}" for each in shown if not each.option.is_flag]
        super().__init__("command", params=parameters, help="\n\n".join([summary, *about]), epilog=epilog)

    def invoke(self, ctx: click.Context) -> None:
        values = {
            each.option.name: ctx.params[name]
            for name, each in self._options.items()
            if ctx.get_parameter_source(name) is not ParameterSource.DEFAULT
        }
        self._run(Given(values, tuple(ctx.obj or ())))


def _parameter_name(each: Declared) -> str:
    return each.option.name.lstrip("-").replace("-", "_").lower()


def _parameter(name: str, each: Declared) -> click.Parameter:
    about = each.option
    variable = about.environment_variable or None
    if not about.is_flag:
        return click.Argument([name], required=each.required, envvar=variable)
    make = partial(
        SectionedOption,
        [name, about.flag],
        is_flag=True if each.is_switch else None,
        type=None if each.is_switch else _type(each),
        help=f"{about.help} [default: {about.default_text}]" if about.default_text else about.help,
        envvar=variable,
        show_envvar=True,
        hidden=about.hidden,
        multiple=each.repeated,
        required=each.required,
    )
    shows_default = each.default is not None and not about.default_text and (not each.is_switch or "/" in about.flag)
    made = make(default=each.default, show_default=True) if shows_default else make()
    made.section = about.section
    return made


def _type(each: Declared) -> "click.ParamType[object]":
    path, bounds = each.option.path, each.option.bounds
    if path:
        return click.Path(
            exists=path.startswith("existing"),
            dir_okay=path in ("any", "existing directory"),
            file_okay=path != "existing directory",
            path_type=Path,
        )
    if each.choices:
        return click.Choice(each.choices, case_sensitive=False)
    if bounds is None:
        return click.types.convert_type(each.kind)
    least = bounds.above if bounds.at_least is None else bounds.at_least
    strict = bounds.at_least is None
    if each.kind is int:
        return click.IntRange(
            None if least is None else int(least),
            None if bounds.at_most is None else int(bounds.at_most),
            min_open=strict,
        )
    return click.FloatRange(least, bounds.at_most, min_open=strict)


def _value(each: Declared, values: Values, environment: Mapping[str, str]) -> object:
    """Return the value of an option's field; None: the field's default."""
    about = each.option
    given = values.get(about.name) if about.flag else environment.get(about.variable)
    if about.contents:
        path = given if isinstance(given, Path) else None
        given = _read_secret(about.contents, path, about.name, environment, about.secret_variable)
    if given is None:
        flag, default = about.default_with or ("", None)
        return default if values.get(flag) else None
    if each.is_switch and "/" not in about.flag:
        return given is not each.default
    try:
        if about.unit and isinstance(given, float):
            given = int(given * about.unit)
        return given if about.parse is None else about.parse(given)
    except (ValueError, OverflowError) as error:
        raise InvalidRequest(f"{about.name}: {error}") from error


def _construct(settings: type[T], values: Values) -> T:
    parts = nested(settings)
    found: dict[str, object] = {name: _construct(part, values) for name, part in parts.items()}
    kind: type = settings
    for each in fields(kind):
        name = option_name(each)
        if name in values:
            found[each.name] = values[name]
    make: Callable[..., T] = settings  # its options hold that the values have their fields' types
    return make(**found)


def _argument(each: Declared, value: object) -> list[str]:
    flag, _, opposite = each.option.flag.partition("/")
    if each.is_switch:
        return [flag] if value else [opposite] if opposite else []
    given = value if each.repeated and isinstance(value, tuple) else (value,)
    return [part for one in given for part in ([flag, str(one)] if each.option.is_flag else [str(one)])]


def _read_secret(what: str, path: Path | None, flag: str, environment: Mapping[str, str], variable: str) -> str | None:
    """Read a secret from the flag's file, else from a variable; None if in neither. Raises InvalidRequest.

    Secrets are never arguments, because all users of a machine can read those.
    """
    secret = environment.get(variable)
    if path is not None:
        try:
            secret = path.read_text().strip()
        except OSError as error:
            raise InvalidRequest(f"{flag}: cannot read {path}: {error.strerror}") from error
    if secret == "":
        raise InvalidRequest(f"The {what} is empty: {path or variable}")
    return secret
