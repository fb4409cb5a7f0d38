"""Metrics by tenant, apart from those by model, so that there are few series; and of the store of their limits."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from tokenwire.coordinator.auth.limit_store import LimitStore
from tokenwire.coordinator.fleet.admission.share_store import ShareStore
from tokenwire.coordinator.observability.record import RequestRecord


class TenantMetrics(Collector):
    """A listener that counts the requests and tokens of the tenants that have keys now.

    A tenant whose last key was removed has no series, and starts at zero if it returns.
    """

    def __init__(self, tenants: Callable[[], Collection[str]]) -> None:
        self._tenants = tenants
        self._requests: Counter[tuple[str, str]] = Counter()
        self._prompt_tokens: Counter[str] = Counter()
        self._completion_tokens: Counter[str] = Counter()

    def on_end(self, record: RequestRecord) -> None:
        """Count a finished request with a valid key."""
        tenant = record.tenant
        if not tenant:
            return
        self._requests[tenant, record.outcome] += 1
        if record.placed_at is not None:
            self._prompt_tokens[tenant] += record.prompt_tokens
            self._completion_tokens[tenant] += record.completion_tokens

    def collect(self) -> Iterator[Metric]:
        """Return all families."""
        self._drop_removed()
        requests = CounterMetricFamily(
            "tokenwire_tenant_requests",
            "Finished HTTP requests with a key of the tenant; `rejected` are those over its limits or the queue's.",
            labels=("tenant", "outcome"),
        )
        for key, count in self._requests.items():
            requests.add_metric(key, count)
        yield requests
        for name, text, counts in (
            ("prompt", "Prompt tokens of the tenant's requests that were placed on a worker.", self._prompt_tokens),
            ("completion", "Tokens sent to the tenant's clients.", self._completion_tokens),
        ):
            tokens = CounterMetricFamily(f"tokenwire_tenant_{name}_tokens", text, labels=("tenant",))
            for tenant, count in counts.items():
                tokens.add_metric((tenant,), count)
            yield tokens

    def _drop_removed(self) -> None:
        current = self._tenants()
        for key in [key for key in self._requests if key[0] not in current]:
            del self._requests[key]
        for counts in (self._prompt_tokens, self._completion_tokens):
            for tenant in counts.keys() - current:
                del counts[tenant]


class LimitStoreCollector(Collector):
    """Collector of the store's failures."""

    def __init__(self, stores: Sequence[LimitStore | ShareStore]) -> None:
        """`stores`: what is counted in it."""
        self._stores = stores

    def collect(self) -> Iterator[Metric]:
        """Return the family."""
        yield CounterMetricFamily(
            "tokenwire_limits_store_failures",
            "Failures of the store of limits; after each, keys are limited or tenants get their shares by each process "
            "alone for 2 s.",
            sum(store.failures for store in self._stores),
        )
