"""Estimates the output size of template operations before they run, for those that can amplify their input."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import update_wrapper
from typing import Any, Protocol

from jinja2 import Environment
from jinja2.sandbox import SandboxedFormatter

from tokenwire.coordinator.text.template.budget import Budget

TOO_MUCH = 1 << 62

# No template needs integers of more bits.
_MAX_BITS = 4096
# Size of a reference, in characters.
_ITEM = 8

_DIGITS = re.compile(r"\d+")


def size(value: Any) -> int:
    """Return the size of a text or collection, in characters."""
    return len(value) if isinstance(value, str | bytes) else _ITEM * len(value)


def _product(left: Any, right: Any) -> int:
    if isinstance(left, int) and isinstance(right, int):
        return 0 if left.bit_length() + right.bit_length() <= _MAX_BITS else TOO_MUCH
    for repeated, times in ((left, right), (right, left)):
        if isinstance(times, int) and hasattr(repeated, "__len__"):
            return size(repeated) * max(times, 0)
    return 0


def _power(base: Any, exponent: Any) -> int:
    if isinstance(base, int) and isinstance(exponent, int):
        return 0 if base.bit_length() * abs(exponent) <= _MAX_BITS else TOO_MUCH
    return 0


def percent(form: Any, values: Any) -> int:
    """Return an upper bound of the size of form % values."""
    if not isinstance(form, str | bytes):
        return 0
    text = form if isinstance(form, str) else form.decode("latin-1")
    # With *, a width or precision is a value; any number may be one.
    given = values if isinstance(values, tuple) else (values,)
    widths = sum(abs(value) for value in given if isinstance(value, int)) if "*" in text else 0
    return widths + _widths(text) + sum(len(value) for value in given if isinstance(value, str)) + len(text)


def _widths(text: str) -> int:
    # A number with more digits is always too large.
    return sum(int(number) if len(number) < 16 else TOO_MUCH for number in _DIGITS.findall(text))


OPERATORS: Mapping[str, Callable[[Any, Any], int]] = {"*": _product, "**": _power, "%": percent}


def add(budget: Budget, values: Sequence[Any]) -> Any:
    """Add values of any type from left to right."""
    total = values[0]
    for value in values[1:]:
        if hasattr(total, "__len__") and hasattr(value, "__len__"):
            budget.charge(size(total) + size(value))
        total = total + value
    return total


def replaced(text: Any, old: Any, new: Any, count: int | None = None) -> int:
    """Return an upper bound of the size of text.replace(old, new, count)."""
    if len(new) <= len(old):
        return len(text)
    found = text.count(old)
    return int(len(text) + (found if count is None or count < 0 else min(found, count)) * len(new))


def joined_size(separator: Any, parts: Collection[Any]) -> int:
    """Return the size of separator.join(parts)."""
    return sum(len(part) for part in parts if isinstance(part, str | bytes)) + len(separator) * len(parts)


def _padded(text: Any, width: int, *_: Any) -> int:
    return max(width, len(text))


def _translated(text: Any, table: Any, *_: Any) -> int:
    values = table.values() if isinstance(table, dict) else ()
    return len(text) * max((len(value) for value in values if isinstance(value, str)), default=1)


def _expanded(text: Any, tabsize: int = 8) -> int:
    return len(text) * max(tabsize, 1)


def _bytes(_: int, length: int = 1, *__: Any, **___: Any) -> int:
    return length


METHODS: Mapping[str, Callable[..., int]] = {
    "replace": replaced,
    "join": joined_size,
    "translate": _translated,
    "expandtabs": _expanded,
    **dict.fromkeys(("center", "ljust", "rjust", "zfill"), _padded),
    "to_bytes": _bytes,
}
"""Methods of built-in types, by name, with their output size."""


class Metered(Protocol):
    """Provides the budget of the current rendering; see tokenwire.coordinator.text.template.sandbox."""

    @property
    def budget(self) -> Budget:
        """The budget."""


class _Formatter(SandboxedFormatter):
    def __init__(self, environment: Environment, meter: Metered) -> None:
        super().__init__(environment)
        self._meter = meter

    def format_field(self, value: Any, format_spec: str) -> Any:
        self._meter.budget.charge(_widths(format_spec) + (len(value) if isinstance(value, str) else 0))
        return super().format_field(value, format_spec)


def formatter(environment: Environment, meter: Metered, method: Any) -> Callable[..., str]:
    """Return a metered replacement of a string's format or format_map."""
    text: str = method.__self__
    is_map = method.__name__ == "format_map"
    form = _Formatter(environment, meter)

    def call(*args: Any, **kwargs: Any) -> str:
        if not is_map:
            return type(text)(form.vformat(text, args, kwargs))
        (values,) = args
        return type(text)(form.vformat(text, (), values))

    return update_wrapper(call, method)
