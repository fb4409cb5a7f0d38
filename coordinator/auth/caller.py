"""Who asks: what the key of a request allows, and what its client says of its patience."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.types import Scope

from tokenwire.errors import Forbidden, InvalidRequest

_TIMEOUT_HEADER = "x-request-timeout"


def _nothing(tokens: int) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Caller:
    """Whose request it is."""

    tenant: str = ""
    """Tenants have equal shares of what is scarce, and see nothing of each other; empty: nobody has a key."""
    min_priority: int | None = None
    """Requests do not go before others of this priority, whatever they ask for."""
    models: frozenset[str] | None = None
    """Names that requests may use; None: all."""
    charge: Callable[[int], None] = _nothing
    """Called with the tokens that were read and written."""

    def priority(self, asked: int) -> int:
        """Return the priority that a request gets."""
        return asked if self.min_priority is None else max(asked, self.min_priority)

    def check_model(self, *names: str) -> None:
        """Check that a model may be used, which has these names. Raises Forbidden."""
        if self.models is not None and self.models.isdisjoint(names):
            raise Forbidden(f"This API key may not use the model `{names[0]}`.", param="model")


ANYBODY = Caller()


def timeout_of(scope: Scope) -> float | None:
    """Return how many seconds a client gives its whole request; None: it does not say. Raises InvalidRequest."""
    text = Headers(scope=scope).get(_TIMEOUT_HEADER)
    if text is None:
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < math.inf:
        raise InvalidRequest(
            f"X-Request-Timeout must be a positive number of seconds, got {text[:100]!r}.", param="X-Request-Timeout"
        )
    return seconds
