"""A slot listener that ends a sequence with what it has, once its oldest token's weights are too old."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from tokenwire.coordinator.fleet.slots import SlotListener
from tokenwire.coordinator.fleet.weight_versions import WeightVersions
from tokenwire.errors import TokenwireError
from tokenwire.protocol.weight_limits import WeightLimits
from tokenwire.v1 import inference_pb2 as pb

if TYPE_CHECKING:
    from tokenwire.coordinator.fleet.session import WorkerSession


class LimitedSequence:
    """Knows which version sampled the tokens that it passes on.

    Once it has ended, it stops the sequence at the next tokens: until then a worker may be paused, or there is none.
    """

    __slots__ = ("_judged", "_label", "_limits", "_listener", "_oldest", "_on_end", "_versions", "ended", "session")

    def __init__(
        self,
        listener: SlotListener,
        limits: WeightLimits,
        versions: WeightVersions,
        on_end: Callable[["LimitedSequence", bool], None],
    ) -> None:
        """`on_end` is called at its end, with whether its weights were too old."""
        self.session: WorkerSession | None = None
        """The session with its last worker."""
        self.ended = False
        self._listener = listener
        self._limits = limits
        self._versions = versions
        self._on_end = on_end
        self._label = ""
        """That of the next tokens."""
        self._judged: str | None = None
        """That of the last tokens, if it is known which operation set it."""
        self._oldest: int | None = None
        """The operation that set the label of the oldest weights of its tokens."""

    @property
    def gained(self) -> int:
        """Those of the listener."""
        return self._listener.gained

    @property
    def cached_tokens(self) -> int:
        """Those of the listener."""
        return self._listener.cached_tokens

    def prefilled(self, info: pb.PrefillInfo) -> None:
        """Pass on."""
        if not self.ended:
            self._listener.prefilled(info)

    def scored(self, rows: pb.LogprobRows) -> None:
        """Pass on."""
        if not self.ended:
            self._listener.scored(rows)

    def weights(self, version: str) -> None:
        """Pass on; it matters with the next tokens."""
        self._label, self._judged = version, None
        if not self.ended:
            self._listener.weights(version)

    def resumed(self) -> None:
        """Pass on."""
        if not self.ended:
            self._listener.resumed()

    def step(self, token_ids: list[int], finish: pb.Finish | None) -> bool:
        """Pass on, unless these tokens make it too old: then it ends without them."""
        if self.ended:
            return True
        if self._judged is None and token_ids and not self._take_label():
            self.expire()
            return True
        stops = self._listener.step(token_ids, finish)
        if stops or finish is not None:
            self._end(False)
        return stops

    def fail(self, error: TokenwireError) -> None:
        """Pass on."""
        if not self.ended:
            self._end(False)
            self._listener.fail(error)

    def is_too_old(self, more: int = 0) -> bool:
        """Return whether its oldest token is too old, with so many versions more than those that are known."""
        if self._oldest is None:
            return False
        lag, least = self._limits.max_lag, self._limits.min_version
        if lag is not None and self._versions.lag(self._oldest) + more > lag:
            return True
        return least is not None and self._oldest < (self._versions.epoch_of(least) or 0)

    def expire(self) -> None:
        """End it with the tokens so far."""
        if not self.ended:
            self._listener.step([], pb.Finish(reason=pb.FINISH_REASON_ABORT))
            self._end(True)

    def abort(self) -> None:
        """End it without calling the listener."""
        if not self.ended:
            self._end(False)

    def _take_label(self) -> bool:
        """Take the label of new tokens; return whether the sequence may have them."""
        epoch = self._version()
        if epoch is None:  # the worker has newer weights, and is about to announce of which operation
            return not self.is_too_old(1)
        self._judged = self._label
        self._oldest = epoch if self._oldest is None else min(epoch, self._oldest)
        return not self.is_too_old()

    def _version(self) -> int | None:
        """Return which operation set the label of the next tokens; None if it is not known yet."""
        if self.session is None or self._label == self.session.serving.weight_version:
            return 0 if self.session is None else self.session.version_epoch
        newest = self._versions.newest
        return newest.epoch if self._label == newest.label else None

    def _end(self, too_old: bool) -> None:
        self.ended = True
        self._on_end(self, too_old)
