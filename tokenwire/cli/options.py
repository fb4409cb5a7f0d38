"""Options that several commands share: one command reads them, another one hands them on."""

from collections.abc import Callable, Mapping
from typing import Any

from tokenwire.cli.main import Command, option


class OptionGroup:
    """Options by their names as keyword arguments: those with values, with attributes for click, and flags."""

    def __init__(
        self, section: str, values: Mapping[str, Mapping[str, Any]], flags: Mapping[str, str] | None = None
    ) -> None:
        """section: their heading in the help. flags: the help of each."""
        self._section = section
        self._values = values
        self._flags = flags or {}

    def add(self, command: Command) -> Command:
        """Add the options to a command, which gets their values as keyword arguments."""
        decorators: list[Callable[[Command], Command]] = [
            option(_flag(name), section=self._section, **attributes) for name, attributes in self._values.items()
        ]
        decorators += [
            option(_flag(name), section=self._section, is_flag=True, help=text) for name, text in self._flags.items()
        ]
        for decorate in reversed(decorators):
            command = decorate(command)
        return command

    def take(self, given: dict[str, Any]) -> dict[str, Any]:
        """Take the values of these options out of a command's."""
        return {name: given.pop(name) for name in (*self._values, *self._flags)}

    def arguments(self, given: Mapping[str, Any]) -> list[str]:
        """Return command line arguments that give another command these values."""
        arguments = []
        for name, attributes in self._values.items():
            values = given[name] if attributes.get("multiple") else [given[name]]
            for value in values:
                if value is not None and value != attributes.get("default"):
                    arguments += [_flag(name), str(value)]
        return arguments + [_flag(name) for name in self._flags if given[name]]


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"
