"""The caller of a request: what its key allows, and the timeout that it sets."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tokenwire.errors import Forbidden, InvalidRequest

TIMEOUT_HEADER = b"x-request-timeout"


def _nothing(tokens: int) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Caller:
    """The tenant of a request and its permissions."""

    tenant: str = ""
    """The unit of fairness and isolation; empty without keys."""
    min_priority: int | None = None
    """Lower bound on the priority of requests (lower goes first)."""
    models: frozenset[str] | None = None
    """Allowed model names; None: all."""
    charge: Callable[[int], None] = _nothing
    """Called with the tokens used."""

    def check_model(self, *names: str) -> None:
        """Check that a model with these names is allowed. Raises Forbidden."""
        if self.models is not None and self.models.isdisjoint(names):
            raise Forbidden(f"This API key may not use the model `{names[0]}`.", param="model")


ANYBODY = Caller()


def timeout_of(headers: Mapping[bytes, bytes]) -> float | None:
    """Return the client's timeout for the whole request in seconds; None without one. Raises InvalidRequest."""
    value = headers.get(TIMEOUT_HEADER)
    if value is None:
        return None
    text = value.decode("latin-1")
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < math.inf:
        raise InvalidRequest(
            f"X-Request-Timeout must be a positive number of seconds, got {text[:100]!r}.", param="X-Request-Timeout"
        )
    return seconds
