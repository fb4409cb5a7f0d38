"""Keeps aborts, so that requests that a coordinator resumes because it did not get their end stay aborted."""

import math
import time
from collections.abc import Callable, Iterable

from tokenwire.v1 import inference_pb2 as pb

_KEPT_S = 600.0
_MOST_IDS = 65_536


class RecentAborts:
    """When requests were aborted here: each of the newest ids for ten minutes, and all requests together."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._by_id: dict[str, float] = {}
        """From the oldest abort to the newest."""
        self._all_at = -math.inf

    def record(self, request_ids: Iterable[str] | None) -> None:
        """Record that requests are aborted, None: all of them."""
        now = self._clock()
        if request_ids is None:
            self._all_at = now
            return
        for request_id in request_ids:
            self._by_id.pop(request_id, None)
            self._by_id[request_id] = now
        while self._by_id and (len(self._by_id) > _MOST_IDS or next(iter(self._by_id.values())) < now - _KEPT_S):
            del self._by_id[next(iter(self._by_id))]

    def include(self, submit: pb.Submit | pb.Pool) -> bool:
        """Return whether a resumed request was aborted since it was first sent to a worker."""
        if not submit.HasField("resumed_after_ms"):
            return False
        aborted_at = max(self._all_at, self._by_id.get(submit.request_id, -math.inf))
        return aborted_at >= self._clock() - submit.resumed_after_ms / 1000
