"""Rejects requests that killed workers when they are sent again.

PoisonDetector classifies the requests that are running when workers die. A client that sends the same request again
creates a new one, and after a disconnect, or without failover, there is no request to classify. So the requests that
a lost worker had just started are stored by a fingerprint of model, adapter, prompt and sampling parameters. One that
was the only suspect common to enough deaths (see `incriminates`) is rejected for a while. If there were several, each
is retried in isolation from the others, and rejected if a worker dies of its isolated retry. A request that gets its
first few tokens, or finishes normally, is cleared. Until it is known whether enough workers died, it is told to wait.

Limits: only the processes of one port share it, and changing a prompt by a token changes the fingerprint.
"""

import hashlib
import logging
import time
from array import array
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tokenwire.coordinator.fleet.failover.poison_detection import incriminates
from tokenwire.coordinator.fleet.failover.poison_journal import PoisonEvent, PoisonJournal
from tokenwire.coordinator.fleet.failover.recovery import gets_seed
from tokenwire.coordinator.fleet.pool_listener import PoolListener
from tokenwire.coordinator.fleet.submission import Submission
from tokenwire.errors import PoisonRequest, Unavailable
from tokenwire.v1 import inference_pb2 as pb

log = logging.getLogger(__name__)

_TTL_S = 600.0
_RETRY_S = 30.0
"""Maximum time for which an isolated retry holds back the other suspects."""
_UNKNOWN_S = 30.0
"""Maximum time for which a loss that may not have been a death holds back its suspects."""
_MAX_DEATHS = 64
_MAX_POISON_REQUESTS = 1024
_RETRY_AFTER_S = 1.0

Fingerprint = bytes


@dataclass(slots=True)
class Death:
    """The loss of a worker."""

    instance_id: str
    when: float
    certain: bool
    """Whether it is known to be dead or to hang; else it counts once its process is known to be gone."""
    suspects: set[Fingerprint]
    unproven_at: str = ""
    """The address of a worker that may fail for everybody; else empty."""


class PoisonCache(PoolListener):
    """Suspects and poison requests by fingerprint."""

    def __init__(
        self,
        is_alive: Callable[[str], bool | None],
        clock: Callable[[], float] = time.monotonic,
        journal: PoisonJournal | None = None,
    ) -> None:
        """`is_alive` returns whether a worker's process still runs, by its instance id; None while unknown.

        `journal` shares the cache with other processes; None: it is this process's own.
        """
        self._is_alive = is_alive
        self._clock = clock
        self.deaths: deque[Death] = deque(maxlen=_MAX_DEATHS)
        """The losses of the last minutes."""
        self.poison: OrderedDict[Fingerprint, float] = OrderedDict()
        """When each entry expires."""
        self._isolated: tuple[Fingerprint, float] | None = None
        """The isolated retry, and when it expires."""
        self.journal = journal

    def check(self, model: str, submission: Submission) -> None:
        """Check a request before it is sent.

        Raises PoisonRequest, or Unavailable during another isolated retry, or until it is known which workers died.
        """
        if self.journal is not None:
            self._catch_up()
        if not self.deaths and not self.poison:
            return
        self._expire()
        fingerprint = fingerprint_of(model, submission)
        losses = [death for death in self.deaths if fingerprint in death.suspects]
        mine = [death for death in losses if self._is_death(death)]
        is_suspect = incriminates(death.unproven_at for death in mine)
        if is_suspect and self._confirmed_among(_last_that_counts(mine)) == 1:
            self._add(fingerprint)
        if fingerprint in self.poison:
            raise PoisonRequest(
                "Two workers died when they started this request. It is not retried, and rejected for "
                f"{_TTL_S / 60:.0f} minutes."
            )
        if is_suspect:
            self._retry_isolated(fingerprint)
        elif incriminates(death.unproven_at for death in losses if self._may_be_death(death)):
            message = "Workers were lost with this request, and it is not known yet whether they died. Try again soon."
            raise Unavailable(message, retry_after_s=_RETRY_AFTER_S)

    def on_worker_lost(
        self, model: str, instance_id: str, certain: bool, recent_starts: Sequence[Submission], unproven_at: str = ""
    ) -> None:
        """Record the loss of a worker (`certain`: it died) with the requests that it had just started."""
        suspects = frozenset(fingerprint_of(model, submission) for submission in recent_starts)
        if not suspects:
            return
        self._record(PoisonEvent("death", self._clock(), suspects, instance_id, certain, unproven_at))
        if self._isolated is not None and self._isolated[0] in suspects and certain and not unproven_at:
            self._add(self._isolated[0])

    def on_worker_survived(self, model: str, submission: Submission) -> None:
        """Record that a worker survived the start of a request."""
        if not self.deaths:
            return
        fingerprint = fingerprint_of(model, submission)
        if any(fingerprint in death.suspects for death in self.deaths):
            self._record(PoisonEvent("survived", self._clock(), frozenset({fingerprint})))
        if self._isolated is not None and self._isolated[0] == fingerprint:
            self._isolated = None

    def add(self, model: str, submission: Submission) -> None:
        """Record a request that was found to be poison."""
        self._add(fingerprint_of(model, submission))

    def _add(self, fingerprint: Fingerprint) -> None:
        self._record(PoisonEvent("poison", self._clock(), frozenset({fingerprint})))

    def _record(self, event: PoisonEvent) -> None:
        if self.journal is not None and self.journal.append(event):
            self._catch_up()
        else:
            self._apply(event)

    def _catch_up(self) -> None:
        for event in self.journal.read_new() if self.journal is not None else ():
            self._apply(event)

    def _apply(self, event: PoisonEvent) -> None:
        fingerprints = event.fingerprints
        match event.kind:
            case "death":
                death = Death(event.instance_id, event.when, event.certain, set(fingerprints), event.unproven_at)
                self._add_death(death)
            case "survived":
                for death in self.deaths:
                    death.suspects -= fingerprints
            case "poison":
                for fingerprint in fingerprints:
                    self._reject(fingerprint, event.when + _TTL_S)

    def _add_death(self, death: Death) -> None:
        """Add a death, or merge it with the same one recorded by another process."""
        for known in self.deaths:
            if known.instance_id == death.instance_id:
                known.suspects |= death.suspects
                known.certain |= death.certain
                known.unproven_at = known.unproven_at and death.unproven_at  # it may have served another process
                return
        self.deaths.append(death)

    def _reject(self, fingerprint: Fingerprint, until: float) -> None:
        if fingerprint not in self.poison:
            log.error("rejecting requests with the fingerprint %s: workers that started it died", fingerprint.hex())
        self.poison[fingerprint] = until
        if len(self.poison) > _MAX_POISON_REQUESTS:
            self.poison.popitem(last=False)
        # These deaths are explained, so they count against no other request.
        self.deaths = deque((death for death in self.deaths if fingerprint not in death.suspects), _MAX_DEATHS)
        if self._isolated is not None and self._isolated[0] == fingerprint:
            self._isolated = None

    def _retry_isolated(self, fingerprint: Fingerprint) -> None:
        now = self._clock()
        if self._isolated is None or self._isolated[0] == fingerprint or self._isolated[1] <= now:
            self._isolated = fingerprint, now + _RETRY_S
            return
        message = "Workers died with this request and another one, which is retried first. Try again in a moment."
        raise Unavailable(message, retry_after_s=_RETRY_AFTER_S)

    def _confirmed_among(self, death: Death) -> int:
        """Return the number of suspects of a death that are suspects of enough others too."""
        deaths = [each for each in self.deaths if each is death or self._is_death(each)]
        return sum(
            incriminates(each.unproven_at for each in deaths if suspect in each.suspects) for suspect in death.suspects
        )

    def _is_death(self, death: Death) -> bool:
        return death.certain or self._is_alive(death.instance_id) is False

    def _may_be_death(self, death: Death) -> bool:
        is_unknown = self._is_alive(death.instance_id) is None and self._clock() - death.when < _UNKNOWN_S
        return is_unknown or self._is_death(death)

    def _expire(self) -> None:
        now = self._clock()
        while self.deaths and self.deaths[0].when + _TTL_S <= now:
            self.deaths.popleft()
        for fingerprint in [each for each, until in self.poison.items() if until <= now]:
            del self.poison[fingerprint]


def _last_that_counts(deaths: Sequence[Death]) -> Death:
    """Return the last one; where those of workers that do not fail for everybody are enough, the last of these."""
    proven = [death for death in deaths if not death.unproven_at]
    return (proven if incriminates("" for _ in proven) else deaths)[-1]


def fingerprint_of(model: str, submission: Submission) -> Fingerprint:
    """Return a fingerprint of all that affects an engine: without ids, salt, or the value of a seed."""
    params = pb.SamplingParams()
    params.CopyFrom(submission.sampling_params)
    if submission.max_tokens is not None:
        params.max_tokens = submission.max_tokens
    if params.HasField("seed"):
        params.seed = 0
        if gets_seed(params):
            params.ClearField("seed")  # it may have been set for a replay
    digest = hashlib.blake2b(digest_size=16)
    how = params if submission.pooled is None else submission.pooled.params
    for part in (model.encode(), submission.lora.name.encode(), how.SerializeToString(deterministic=True)):
        digest.update(len(part).to_bytes(4, "big") + part)
    digest.update(array("I", submission.prompt_token_ids).tobytes())
    if submission.media is not None:
        digest.update(b"".join(item.digest for item in submission.media.items))
        digest.update((submission.media.options_json or "").encode())
    return digest.digest()
