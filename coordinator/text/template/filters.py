"""Replaces Jinja's filters that can amplify their input with ones that charge the budget first."""

import json
from collections.abc import Callable, Iterable
from functools import partial, wraps
from typing import Any

from jinja2 import Environment
from jinja2 import filters as jinja
from jinja2.utils import generate_lorem_ipsum

from tokenwire.coordinator.text.template import operation_costs as costs

# Filters whose output is about the size of their input; many of the same text add up.
_COPIES = ("capitalize", "e", "escape", "forceescape", "lower", "reverse", "striptags", "title", "upper", "urlencode")

# Filters that go through all items of their input and make objects of them.
_COLLECTS = ("dictsort", "groupby", "list", "max", "min", "sort", "unique")
_ITEM_COST = 16

_MAX_PRECISION = 400
_MAX_INDENT = 1000


class BoundedFilters:
    """The filters of one environment."""

    def __init__(self, environment: Environment, meter: costs.Metered) -> None:
        self._environment = environment
        self._meter = meter

    def by_name(self) -> dict[str, Callable[..., Any]]:
        """Return the replacements of Jinja's filters."""
        return {
            "tojson": self._tojson,
            "join": self._join,
            "sum": self._sum,
            "replace": self._replace,
            "center": self._charging(jinja.do_center, _width),
            "indent": self._charging(jinja.do_indent, _indented),
            "format": self._charging(jinja.do_format, _formatted),
            "wordwrap": self._charging(partial(jinja.do_wordwrap, self._environment), _wrapped),
            "round": self._charging(jinja.do_round, _precision),
            "batch": self._charging(jinja.do_batch, _count),
            "slice": self._charging(jinja.sync_do_slice, _count),
            **{name: self._charging(jinja.FILTERS[name], _length) for name in _COPIES},
            **{name: self._charging(jinja.FILTERS[name], _items) for name in _COLLECTS},
        }

    def lipsum(self, n: int = 5, html: bool = True, min: int = 20, max: int = 100) -> str:
        """Return filler text."""
        self._meter.budget.charge(n * max * 20)
        return generate_lorem_ipsum(n, html, min, max)

    def _charging(self, original: Callable[..., Any], cost: Callable[..., int]) -> Callable[..., Any]:
        @wraps(original)  # with what it says of its first argument
        def call(*args: Any, **kwargs: Any) -> Any:
            budget = self._meter.budget
            budget.tick()
            budget.charge(cost(*args[hasattr(original, "jinja_pass_arg") :], **kwargs))
            return original(*args, **kwargs)

        return call

    def _tojson(
        self,
        value: Any,
        ensure_ascii: bool = False,
        indent: int | str | None = None,
        separators: tuple[str, str] | None = None,
        sort_keys: bool = False,
    ) -> str:
        # Jinja's own filter escapes HTML characters, which models were not trained on.
        encode = json.JSONEncoder(ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
        budget = self._meter.budget
        if indent is None:
            text = encode.encode(value)
            budget.charge(len(text))
            return text
        if (len(indent) if isinstance(indent, str) else indent) > _MAX_INDENT:
            budget.charge(costs.TOO_MUCH)
        pieces = []
        for piece in encode.iterencode(value):  # slow, as it is pure Python, and indented at every level
            budget.tick()
            budget.charge(len(piece))
            pieces.append(piece)
        return "".join(pieces)

    def _join(self, value: Iterable[Any], d: Any = "", attribute: str | int | None = None) -> str:
        if attribute is not None:
            value = map(jinja.make_attrgetter(self._environment, attribute), value)
        parts, separator = list(map(str, value)), str(d)
        self._meter.budget.charge(costs.joined_size(separator, parts))
        return separator.join(parts)

    def _replace(self, value: Any, old: Any, new: Any, count: int | None = None) -> str:
        text, old, new = str(value), str(old), str(new)
        budget = self._meter.budget
        budget.tick()
        budget.charge(costs.replaced(text, old, new, count))
        return text.replace(old, new, -1 if count is None else count)

    def _sum(self, iterable: Iterable[Any], attribute: str | int | None = None, start: Any = 0) -> Any:
        if attribute is not None:
            iterable = map(jinja.make_attrgetter(self._environment, attribute), iterable)
        if isinstance(start, str):
            return sum(iterable, start)  # raises TypeError
        return costs.add(self._meter.budget, [start, *iterable])


def _length(value: Any, *_: Any, **__: Any) -> int:
    return len(value) if hasattr(value, "__len__") else 0


def _items(value: Any, *_: Any, **__: Any) -> int:
    return _ITEM_COST * _length(value)


def _width(_: Any, width: int = 80) -> int:
    return width


def _indented(text: Any, width: int | str = 4, *_: Any, **__: Any) -> int:
    size = len(width) if isinstance(width, str) else width
    return len(text) + size * (1 + len(text.splitlines()))


def _formatted(form: Any, *args: Any, **kwargs: Any) -> int:
    return costs.percent(str(form), args or tuple(kwargs.values()))


def _wrapped(
    text: str, width: int = 79, break_long_words: bool = True, wrapstring: str | None = None, *_: Any, **__: Any
) -> int:
    # It rescans the rest of a line for each piece that it splits off, and a piece has at least one character.
    return len(text) * (1 + len(wrapstring or "")) + len(text) ** 2 // max(width, 1)


def _precision(_: Any, precision: int = 0, *__: Any, **___: Any) -> int:
    return 0 if abs(precision) <= _MAX_PRECISION else costs.TOO_MUCH


def _count(_: Any, count: int, *__: Any, **___: Any) -> int:
    return count
