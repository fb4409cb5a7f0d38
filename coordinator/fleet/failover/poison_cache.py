"""Remembers what engines died of, so that sending it once more does not kill the next one.

PoisonDetector judges the requests that are there when workers die. A client that sends the same thing again makes a new
request of it, and one that leaves, or a coordinator without failover, leaves nothing to judge. So the requests that a
lost worker had just begun with are remembered by what they are: a fingerprint of model, adapter, prompt and sampling
parameters. One that was there when two workers died, as the only such, is refused for a while. Where several were, each
is tried with none of the others; the one that a worker dies of on its isolated is refused. Whatever gets its first few
tokens, or ends as it should, is cleared from then on.

Its limits: the memory is this process's own, and whoever changes a prompt by a token has another fingerprint.
"""

import hashlib
import logging
import time
from array import array
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tokenwire.coordinator.fleet.failover.recovery import gets_seed
from tokenwire.errors import DeadlyRequest, Unavailable
from tokenwire.v1 import inference_pb2 as pb

log = logging.getLogger(__name__)

_REMEMBERED_S = 600.0
_TRIAL_S = 30.0
"""How long a request on isolated keeps the others waiting at most."""
_MOST_DEATHS = 64
_MOST_REFUSED = 1024
_RETRY_AFTER_S = 1.0

Fingerprint = bytes


@dataclass(slots=True)
class Death:
    """The loss of a worker."""

    instance_id: str
    when: float
    certain: bool
    """Whether it was seen to be dead or to hang; else it counts once its process is known to be gone."""
    suspects: set[Fingerprint]


class PoisonCache:
    """What is known against requests, by what they are."""

    def __init__(self, lives: Callable[[str], bool | None], clock: Callable[[], float] = time.monotonic) -> None:
        """`lives` tells whether a worker's process still runs, by its instance id; None while nobody knows."""
        self._lives = lives
        self._clock = clock
        self.deaths: deque[Death] = deque(maxlen=_MOST_DEATHS)
        self.refused: OrderedDict[Fingerprint, float] = OrderedDict()
        """Until when."""
        self._trial: tuple[Fingerprint, float] | None = None
        """What is tried, and until when at most."""

    def check(self, model: str, submit: pb.Submit) -> None:
        """Check a request before it is sent. Raises DeadlyRequest, or Unavailable while another one is tried alone.

        There is nothing to check while there are neither `deaths` nor `refused`.
        """
        self._forget_old()
        fingerprint = fingerprint_of(model, submit)
        mine = [death for death in self.deaths if fingerprint in death.suspects and self._is_death(death)]
        if len(mine) > 1 and self._confirmed_among(mine[-1]) == 1:
            self._add(fingerprint)
        if fingerprint in self.refused:
            raise DeadlyRequest(
                "Two workers died when they began with this request. It is not tried on a third one, and refused for "
                f"{_REMEMBERED_S / 60:.0f} minutes."
            )
        if len(mine) > 1:
            self._try(fingerprint)

    def lost(self, model: str, instance_id: str, certain: bool, recent_starts: Sequence[pb.Submit]) -> None:
        """Hear that a worker died, or that its connection broke, and with what it had just begun."""
        suspects = {fingerprint_of(model, submit) for submit in recent_starts}
        if not suspects:
            return
        now = self._clock()
        self.deaths.append(Death(instance_id, now, certain, suspects))
        if self._trial is not None and self._trial[0] in suspects and certain:
            self._add(self._trial[0])

    def survived(self, model: str, submit: pb.Submit) -> None:
        """Hear that a worker got past the beginning of a request."""
        if not self.deaths:
            return
        fingerprint = fingerprint_of(model, submit)
        for death in self.deaths:
            death.suspects.discard(fingerprint)
        if self._trial is not None and self._trial[0] == fingerprint:
            self._trial = None

    def add(self, model: str, submit: pb.Submit) -> None:
        """Hear that a request was found to be what workers die of."""
        self._add(fingerprint_of(model, submit))

    def _add(self, fingerprint: Fingerprint) -> None:
        if fingerprint not in self.refused:
            log.error(
                "requests with the fingerprint %s are refused: workers that began with it died", fingerprint.hex()
            )
        self.refused[fingerprint] = self._clock() + _REMEMBERED_S
        if len(self.refused) > _MOST_REFUSED:
            self.refused.popitem(last=False)
        # What died with it has shown nothing against others.
        self.deaths = deque((death for death in self.deaths if fingerprint not in death.suspects), _MOST_DEATHS)
        if self._trial is not None and self._trial[0] == fingerprint:
            self._trial = None

    def _try(self, fingerprint: Fingerprint) -> None:
        now = self._clock()
        if self._trial is None or self._trial[0] == fingerprint or self._trial[1] <= now:
            self._trial = fingerprint, now + _TRIAL_S
            return
        message = "Workers died with this request and another one, which is tried first. Send it again in a moment."
        raise Unavailable(message, retry_after_s=_RETRY_AFTER_S)

    def _confirmed_among(self, death: Death) -> int:
        """Count those who were there when this and another worker died."""
        others = [other for other in self.deaths if other is not death and self._is_death(other)]
        return sum(any(suspect in other.suspects for other in others) for suspect in death.suspects)

    def _is_death(self, death: Death) -> bool:
        return death.certain or self._lives(death.instance_id) is False

    def _forget_old(self) -> None:
        now = self._clock()
        while self.deaths and self.deaths[0].when + _REMEMBERED_S <= now:
            self.deaths.popleft()
        for fingerprint in [each for each, until in self.refused.items() if until <= now]:
            del self.refused[fingerprint]


def fingerprint_of(model: str, submit: pb.Submit) -> Fingerprint:
    """Return what tells requests apart that do different things to an engine: no id, no salt, no value of a seed."""
    params = pb.SamplingParams()
    params.CopyFrom(submit.sampling_params)
    if params.HasField("seed"):
        params.seed = 0
        if gets_seed(params):
            params.ClearField("seed")  # perhaps of our own drawing
    digest = hashlib.blake2b(digest_size=16)
    for part in (model.encode(), submit.lora.name.encode(), params.SerializeToString(deterministic=True)):
        digest.update(len(part).to_bytes(4, "big") + part)
    digest.update(array("I", submit.prompt_token_ids).tobytes())
    return digest.digest()
