"""Models named at startup: listed, and their requests held, until their first worker connects."""

import asyncio
from collections import Counter
from collections.abc import Iterable

from tokenwire.coordinator.fleet.admission.settings import LEAST_QUEUE, AdmissionSettings, Rejection
from tokenwire.errors import Unavailable

_RETRY_AFTER_S = 2.0


class ExpectedModels:
    """The expected models, and the requests held for those without a worker so far.

    Such a request cannot be queued, because its prompt cannot be tokenized without the worker's tokenizer. It is held
    before it is parsed, within the limits of the queue.
    """

    def __init__(self, names: Iterable[str] = (), admission: AdmissionSettings | None = None) -> None:
        self._admission = admission or AdmissionSettings()
        self._available = {name: asyncio.Event() for name in names}
        self.waiting: Counter[str] = Counter()
        """Held requests by model."""
        self.rejections: Counter[tuple[str, Rejection]] = Counter()
        """Rejected requests by model and reason."""

    def unknown(self) -> list[str]:
        """Return the models whose first worker has not connected yet."""
        return [name for name, available in self._available.items() if not available.is_set()]

    def mark_available(self, names: Iterable[str]) -> None:
        """Release the requests of a model with these names."""
        for name in self._available.keys() & set(names):
            self._available[name].set()

    def mark_unavailable(self, names: Iterable[str]) -> None:
        """Hold further requests of a model with these names."""
        for name in self._available.keys() & set(names):
            self._available[name].clear()

    async def wait(self, name: str) -> None:
        """Wait until an expected model is available; return at once for other models. Raises Unavailable."""
        available = self._available.get(name)
        if available is None or available.is_set():
            return
        limit = LEAST_QUEUE if self._admission.max_queue is None else self._admission.max_queue
        if self.waiting[name] >= limit:
            queue = f"{self.waiting[name]} of at most {limit} requests wait for one (--max-queue)"
            raise self._reject(name, "no_worker", f"yet, and {queue}")
        self.waiting[name] += 1
        try:
            async with asyncio.timeout(self._admission.queue_timeout_s):
                await available.wait()
        except TimeoutError:
            within = f"within {self._admission.queue_timeout_s:g} s (--queue-timeout)"
            raise self._reject(name, "timeout", within) from None
        finally:
            self.waiting[name] -= 1

    def _reject(self, name: str, reason: Rejection, how_far: str) -> Unavailable:
        self.rejections[name, reason] += 1
        return Unavailable(f"No worker of {name} has connected {how_far}.", retry_after_s=_RETRY_AFTER_S)
