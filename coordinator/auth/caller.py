"""Who asks: what the key of a request allows, and what its client says of its patience."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tokenwire.errors import Forbidden, InvalidRequest

TIMEOUT_HEADER = b"x-request-timeout"


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

    def check_model(self, *names: str) -> None:
        """Check that a model may be used, which has these names. Raises Forbidden."""
        if self.models is not None and self.models.isdisjoint(names):
            raise Forbidden(f"This API key may not use the model `{names[0]}`.", param="model")


ANYBODY = Caller()


def timeout_of(headers: Mapping[bytes, bytes]) -> float | None:
    """Return how many seconds a client gives its whole request, None where it says nothing. Raises InvalidRequest."""
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
