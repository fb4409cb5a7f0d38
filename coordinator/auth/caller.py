"""The caller of a request: what its key allows."""

from dataclasses import dataclass

from tokenwire.coordinator.auth.rate_limit import Account
from tokenwire.errors import Forbidden


@dataclass(frozen=True, slots=True)
class Caller:
    """The tenant of a request and its permissions."""

    tenant: str = ""
    """The unit of fairness and isolation; empty without keys."""
    weight: int = 1
    """Of the tenant: with twice the weight it gets twice the share."""
    min_priority: int | None = None
    """Lower bound on the priority of requests (lower goes first)."""
    models: frozenset[str] | None = None
    """Allowed model names; None: all."""
    account: Account | None = None
    """Its usage; None: it has no limits."""

    def check_model(self, *names: str) -> None:
        """Check that a model with these names is allowed. Raises Forbidden."""
        if self.models is not None and self.models.isdisjoint(names):
            raise Forbidden(f"This API key may not use the model `{names[0]}`.", param="model")


ANYBODY = Caller()
