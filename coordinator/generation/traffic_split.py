"""Which revision of a model gets a request while workers of several are served: a rollout."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tokenwire.coordinator.fleet.routing import TTLCache
from tokenwire.protocol.model_revision import ModelRevision
from tokenwire.v1 import inference_pb2 as pb

_PROBE_PERCENT = 5.0
"""Of new requests at most, for a revision that was withheld and has served none since."""
_CONVERSATIONS, _CONVERSATION_TTL_S = 65_536, 1800.0


class RevisionedWorkers(Protocol):
    """What a split needs of the workers; see WorkerPool."""

    def live_revisions(self, model: str) -> Sequence[ModelRevision]:
        """Return the revisions of the workers that take requests, the oldest one first."""

    def announced(self, model: str) -> Sequence[pb.Model]:
        """Return what the listed workers of a model started with, connected or not."""

    def plausible_capacity(self, model: str, revision: ModelRevision) -> int:
        """Return the free capacity of a revision's workers, in sequences, none of them much more than others have."""

    def is_withheld(self, model: str, revision: ModelRevision) -> bool:
        """Return whether all workers of a revision are withheld from new requests, or have served none since."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """What tells the conversation of a request from others."""

    tenant: str
    id: str | None = None
    """As the client names it."""
    messages: Sequence[Mapping[str, Any]] = ()
    """Without an id, one is known by its first question."""

    @property
    def key(self) -> tuple[str, str] | None:
        """What is the same for all of its requests; None if that is not known."""
        if self.id is not None:
            return self.tenant, self.id
        opening = next((each.get("content") for each in self.messages if each.get("role") == "user"), None)
        return None if opening is None else (self.tenant, f"opening {hash(str(opening))}")

    @property
    def has_begun(self) -> bool:
        """Whether there are earlier replies."""
        return any(each.get("role") == "assistant" for each in self.messages)


class TrafficSplit:
    """Gives each revision its share of new requests, and keeps conversations at theirs.

    A revision without a share of its own gets requests in proportion to its free capacity; none where its workers are
    silent or failing and another revision serves, but for a probe now and then.
    """

    def __init__(self, workers: RevisionedWorkers, shares: Mapping[str, float]) -> None:
        """`shares`: percentages by the digest of a revision."""
        self._workers = workers
        self._shares = shares
        self._credits: dict[str, dict[ModelRevision, float]] = {}
        """By model: smooth weighted round-robin."""
        self._conversations = TTLCache(_CONVERSATIONS, _CONVERSATION_TTL_S)

    def choose(
        self, model: str, live: Sequence[ModelRevision], conversation: Conversation | None = None
    ) -> ModelRevision:
        """Return the revision for a request, one of several live ones."""
        key = None if conversation is None else conversation.key
        if conversation is None or key is None:
            return self._next(model, live)
        kept, serving = None, self._serving(model, live)
        if conversation.id is not None or conversation.has_begun:
            digest = self._conversations.get((model, key))
            kept = next((revision for revision in serving if revision.digest == digest), None)
        if kept is None:
            # One that is not known began before the rollout, or at another coordinator.
            kept = serving[0] if conversation.has_begun else self._next(model, live)
        self._conversations.put((model, key), kept.digest)
        return kept

    def shares(self, model: str, live: Sequence[ModelRevision]) -> dict[ModelRevision, float]:
        """Return the percentages of live revisions, as of now."""
        named = {each: self._shares[each.digest] for each in live if each.digest in self._shares}
        free = {each: self._workers.plausible_capacity(model, each) for each in live if each not in named}
        serving = self._serving(model, live)
        probed = {each: min(count, 1) * _PROBE_PERCENT for each, count in free.items() if each not in serving}
        free = {each: count for each, count in free.items() if each in serving}
        rest = 100.0 - sum(named.values())
        total = sum(free.values())
        weights = named | {each: rest * (count / total if total else 1 / len(free)) for each, count in free.items()}
        total_weight = sum(weights.values())
        if not total_weight:  # only revisions that are to get nothing are left
            return {each: 100 / len(serving) if each in serving else 0.0 for each in live}
        left = (100 - sum(probed.values())) / total_weight
        return {each: probed[each] if each in probed else left * weights[each] for each in live}

    def _serving(self, model: str, live: Sequence[ModelRevision]) -> Sequence[ModelRevision]:
        """Return the revisions that are not withheld; those with a share of their own never are."""
        serving = [each for each in live if each.digest in self._shares or not self._workers.is_withheld(model, each)]
        return serving or live

    def _next(self, model: str, live: Sequence[ModelRevision]) -> ModelRevision:
        earlier = self._credits.get(model, {})
        shares = self.shares(model, live)
        credits = self._credits[model] = {each: earlier.get(each, 0.0) + share for each, share in shares.items()}
        chosen = max((each for each in live if shares[each]), key=lambda each: credits[each])
        credits[chosen] -= 100
        return chosen
