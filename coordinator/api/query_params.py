"""Reads the query parameters of routes; each error names its parameter."""

import math

from starlette.datastructures import QueryParams

from tokenwire.errors import InvalidRequest

_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}


def check_known(query: QueryParams, *known: str) -> None:
    """Raise InvalidRequest for a parameter that a route does not have: it would otherwise do nothing, in silence."""
    for name in query:
        if name not in known:
            takes = f"takes {', '.join(known)}" if known else "takes none"
            raise InvalidRequest(f"{name[:100]!r} is not a parameter of this route, which {takes}.", param=name[:100])


def number_of(query: QueryParams, name: str, most: int | None = None, least: int = 1) -> int | None:
    """Return a whole number within bounds; None if it is not there. Raises InvalidRequest."""
    given = query.get(name)
    if given is None:
        return None
    number = int(given) if given.isascii() and given.isdigit() and len(given) < 16 else least - 1
    if number < least or (most is not None and number > most):
        limit = "" if most is None else f" and at most {most}"
        message = f"`{name}` must be a whole number from {least} on{limit}, not {given[:100]!r}."
        raise InvalidRequest(message, param=name)
    return number


def time_of(query: QueryParams, name: str) -> float | None:
    """Return a time in seconds since 1970; None if it is not there. Raises InvalidRequest."""
    given = query.get(name)
    if given is None:
        return None
    try:
        value = float(given)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise InvalidRequest(f"`{name}` must be a time in seconds since 1970, not {given[:100]!r}.", param=name)
    return value


def one_of(query: QueryParams, name: str, values: tuple[str, ...]) -> str:
    """Return one of some values, the first one if it is not there. Raises InvalidRequest."""
    given = query.get(name, values[0])
    if given not in values:
        raise InvalidRequest(f"`{name}` must be one of {', '.join(values)}, not {given[:100]!r}.", param=name)
    return given


def flag_of(query: QueryParams, name: str) -> bool:
    """Return whether a parameter is set. Raises InvalidRequest."""
    given = query.get(name, "false")
    if given not in _BOOLEANS:
        raise InvalidRequest(f"`{name}` must be true or false, not {given[:100]!r}.", param=name)
    return _BOOLEANS[given]
