"""Models that were named at the start: until their first worker comes they are listed, and requests wait for it."""

import asyncio
from collections import Counter
from collections.abc import Iterable

from tokenwire.coordinator.fleet.admission.settings import LEAST_QUEUE, AdmissionSettings, Refusal
from tokenwire.errors import Unavailable

_RETRY_AFTER_S = 2.0


class ExpectedModels:
    """Which models are expected, which of them are not known yet, and who waits for those.

    A request for such a model cannot stand in line: without its tokenizer nobody knows its prompt. It waits before
    it is looked at, within the bounds of the line.
    """

    def __init__(self, names: Iterable[str] = (), admission: AdmissionSettings | None = None) -> None:
        self._admission = admission or AdmissionSettings()
        self._known = {name: asyncio.Event() for name in names}
        self.waiting: Counter[str] = Counter()
        """Requests that wait, by model."""
        self.refusals: Counter[tuple[str, Refusal]] = Counter()
        """Requests that were sent away, by model and reason."""

    def unknown(self) -> list[str]:
        """List those whose first worker has not come yet."""
        return [name for name, known in self._known.items() if not known.is_set()]

    def mark_available(self, names: Iterable[str]) -> None:
        """Hear that a model is known under these names."""
        for name in self._known.keys() & set(names):
            self._known[name].set()

    def mark_unavailable(self, names: Iterable[str]) -> None:
        """Hear that a model is not known any more."""
        for name in self._known.keys() & set(names):
            self._known[name].clear()

    async def wait(self, name: str) -> None:
        """Wait until a model is known, if it is expected. Raises Unavailable."""
        known = self._known.get(name)
        if known is None or known.is_set():
            return
        limit = LEAST_QUEUE if self._admission.max_queue is None else self._admission.max_queue
        if self.waiting[name] >= limit:
            raise self._refusal(name, "no_worker")
        self.waiting[name] += 1
        try:
            async with asyncio.timeout(self._admission.queue_timeout_s):
                await known.wait()
        except TimeoutError:
            raise self._refusal(name, "timeout") from None
        finally:
            self.waiting[name] -= 1

    def _refusal(self, name: str, reason: Refusal) -> Unavailable:
        self.refusals[name, reason] += 1
        return Unavailable(f"No worker of {name} has come yet.", retry_after_s=_RETRY_AFTER_S)
