"""The choice of a worker for a request: the one where its first token costs the least."""

import itertools
import os
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import field
from hashlib import blake2b
from typing import Generic, Literal, Protocol, TypeVar

from tokenwire.coordinator.fleet.prefix_index import CAPACITY, PrefixIndex
from tokenwire.coordinator.fleet.request_handle import Placement
from tokenwire.coordinator.fleet.submission import Submission
from tokenwire.coordinator.fleet.workload import Workload
from tokenwire.errors import InvalidRequest
from tokenwire.process.value_class import value_class
from tokenwire.protocol.prefix_hash import BLOCK_TOKENS, prefix_hashes, scope_of
from tokenwire.v1 import inference_pb2 as pb

Policy = Literal["affinity", "load", "round-robin"]

CONVERSATION_TOKENS = 512
"""Discount for the worker of a conversation's last request: it may hold more of it than was sent to it."""
ADAPTER_TOKENS = 256
"""Discount for the worker that used the adapter last: another one may have to load it."""
MEDIA_TOKENS = 512
"""Discount for the worker that has processed the prompt's pictures: another one has to get and process them, too."""
_CONVERSATIONS, _CONVERSATION_TTL_S = 65_536, 1800.0
_ADAPTERS, _ADAPTER_TTL_S = 1024, 300.0
_EVENT_BLOCKS_PER_S = 1000
"""Of one worker, beyond its share at once: more than an engine computes."""


class Candidate(Protocol):
    """The part of a WorkerSession that routing uses."""

    @property
    def address(self) -> str:
        """The worker's address."""

    @property
    def instance_id(self) -> str:
        """Identifies the worker's process."""

    @property
    def workload(self) -> Workload:
        """The worker's workload."""


W = TypeVar("W", bound=Candidate)
WCo = TypeVar("WCo", bound=Candidate, covariant=True)


@value_class
class RoutingInputs:
    """What the choice depends on besides the workers' load."""

    tokens: int
    """Length of the prompt."""
    hashes: Sequence[int] = ()
    """Prefix hashes of its blocks."""
    cached: Mapping[str, int] = field(default_factory=dict)
    """How many leading tokens each worker has cached, by address: workers choose their instance ids themselves."""
    conversation: bytes = b""
    conversation_worker: str | None = None
    adapter: int = 0
    adapter_worker: str | None = None
    media_worker: str | None = None


@value_class
class Decision(Generic[WCo]):
    """The chosen worker and the reasons. All figures are prompt tokens to compute."""

    worker: WCo
    inputs: RoutingInputs
    cached: int
    """Prompt tokens that the worker is believed to have cached; the prompt's last token is always computed."""
    new: int
    """Tokens of the prompt that the worker has to compute."""
    ahead: int
    """Work ahead of the request when it was sent."""
    others: int
    """How many other workers could have taken it."""
    policy: Policy

    def explain(self) -> str:
        """Return the worker and the reasons, on one line."""
        return f'{self.worker.address}; cached={self.cached}; ahead={self.ahead}; why="{self._why()}"'

    def _why(self) -> str:
        inputs, instance = self.inputs, self.worker.instance_id
        if not self.others:
            return "no other can take it"
        if self.policy != "affinity":
            return "least sequences" if self.policy == "load" else "round-robin"
        reasons = [
            (self.cached > 0, "holds a part of the prompt"),
            (inputs.conversation_worker == instance, "had the conversation last"),
            (inputs.adapter_worker == instance, "used the adapter last"),
            (inputs.media_worker == instance, "has processed the pictures"),
        ]
        return ", ".join(reason for holds, reason in reasons if holds) or "least work ahead"


class TTLCache:
    """Maps keys to the workers that used them last: an LRU cache, bounded in size, whose entries expire."""

    def __init__(self, capacity: int, ttl_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._capacity = capacity
        self._ttl_s = ttl_s
        self._clock = clock
        self._entries: OrderedDict[Hashable, tuple[str, float]] = OrderedDict()
        """Least recently used first."""

    def __len__(self) -> int:
        """The number of entries, expired ones included."""
        return len(self._entries)

    def get(self, key: Hashable) -> str | None:
        """Return the worker of a key; None if absent or expired."""
        worker, used_at = self._entries.get(key, (None, 0.0))
        return worker if self._clock() - used_at <= self._ttl_s else None

    def put(self, key: Hashable, worker: str) -> None:
        """Store the worker of a key."""
        self._entries[key] = worker, self._clock()
        self._entries.move_to_end(key)
        if len(self._entries) > self._capacity:
            self._entries.popitem(last=False)


class _EventShare:
    """How many blocks of a worker's events are indexed: the index is shared by all workers, of all models."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._taken = 0.0
        """Of late."""
        self._at = clock()

    def take(self, stored: Sequence[int], most: int) -> Sequence[int]:
        """Return the blocks for which there is room, the last ones, in a share of so many."""
        now = self._clock()
        self._taken = max(0.0, self._taken - (now - self._at) * _EVENT_BLOCKS_PER_S)
        self._at = now
        taken = min(len(stored), max(0, int(most - self._taken)))
        self._taken += taken
        return stored[len(stored) - taken :]


class Router:
    """Chooses the worker with the lowest `cost`; among equals, the one that was chosen least recently."""

    def __init__(self, policy: Policy = "affinity", clock: Callable[[], float] = time.monotonic) -> None:
        self._policy = policy
        self._clock = clock
        self._turns = itertools.count()
        self._last_turn: dict[str, int] = {}
        self._prefixes = PrefixIndex()
        self._conversations = TTLCache(_CONVERSATIONS, _CONVERSATION_TTL_S)
        self._adapters = TTLCache(_ADAPTERS, _ADAPTER_TTL_S)
        self._caches: dict[str, tuple[str, str]] = {}
        """The instance and weights whose cache is in the index, by address."""
        self._shares: dict[str, _EventShare] = {}
        """By address."""
        # Conversation ids are secrets of clients, so only keyed digests of them are stored.
        self._secret = os.urandom(16)

    def choose(self, candidates: Sequence[W], submission: Submission, placement: Placement) -> Decision[W]:
        """Choose among the workers that can take a request, at least one."""
        preferred = [worker for worker in candidates if worker.instance_id not in placement.avoid] or candidates
        inputs = self._inputs(submission)
        chosen = preferred[0] if len(preferred) == 1 else self._cheapest(preferred, inputs)
        cached = min(inputs.cached.get(chosen.address, 0), max(0, inputs.tokens - 1))
        self._record_conversation(chosen, inputs)
        ahead = chosen.workload.ahead()
        return Decision(chosen, inputs, cached, inputs.tokens - cached, ahead, len(preferred) - 1, self._policy)

    def _cheapest(self, workers: Sequence[W], inputs: RoutingInputs) -> W:
        return min(workers, key=lambda each: (self.cost(each, inputs), self._last_turn.get(each.instance_id, -1)))

    def cost(self, worker: Candidate, inputs: RoutingInputs) -> int:
        """Return the cost of a request's first token on a worker, in prompt tokens to compute."""
        if self._policy == "round-robin":
            return 0
        if self._policy == "load":
            return worker.workload.sequences
        instance = worker.instance_id
        cost = inputs.tokens - inputs.cached.get(worker.address, 0) + worker.workload.ahead()
        if instance == inputs.conversation_worker:
            cost -= CONVERSATION_TOKENS
        if instance == inputs.adapter_worker:
            cost -= ADAPTER_TOKENS
        if instance == inputs.media_worker:
            cost -= MEDIA_TOKENS
        return cost

    def on_worker_state(self, worker: Candidate, weights: str) -> None:
        """Record a worker's process and weights: when either changes, its cache is empty."""
        cache = worker.instance_id, weights
        known = self._caches.get(worker.address)
        if known != cache:
            if known is not None:
                self._prefixes.remove_worker(worker.address)
                if known[0] != worker.instance_id:
                    self._last_turn.pop(known[0], None)
            self._caches[worker.address] = cache

    def on_kv_events(self, worker: Candidate, change: pb.CacheChange) -> None:
        """Update the prefix index from the blocks that a worker's cache stored and evicted."""
        if self._policy == "affinity":
            address = worker.address
            if change.cleared:
                self._prefixes.remove_worker(address)
            self._prefixes.remove(address, change.removed)
            share = self._shares.setdefault(address, _EventShare(self._clock))
            self._prefixes.add(address, share.take(change.stored, CAPACITY // max(1, len(self._caches))))

    def remove(self, worker: Candidate) -> None:
        """Remove a worker and what it caches."""
        self._caches.pop(worker.address, None)
        self._shares.pop(worker.address, None)
        self._last_turn.pop(worker.instance_id, None)
        self._prefixes.remove_worker(worker.address)

    def _inputs(self, submission: Submission) -> RoutingInputs:
        tokens, adapter = len(submission.prompt_token_ids), submission.lora.id
        # With only one worker there is nothing to choose, so hashing would be wasted.
        # Nor are inputs to pool, of which few share a prefix worth a detour.
        if self._policy != "affinity" or len(self._caches) < 2 or submission.pooled is not None:
            return RoutingInputs(tokens)
        hashes = _hashes(submission) if tokens >= BLOCK_TOKENS else ()
        conversation = b""
        if submission.session_id:
            conversation = blake2b(submission.session_id.encode(), key=self._secret, digest_size=16).digest()
        return RoutingInputs(
            tokens=tokens,
            hashes=hashes,
            cached=self._prefixes.match(hashes) if hashes and _reads_cache(submission.sampling_params) else {},
            conversation=conversation,
            conversation_worker=self._conversations.get(conversation) if conversation else None,
            adapter=adapter,
            adapter_worker=self._adapters.get(adapter) if adapter else None,
            media_worker=None if submission.media is None else submission.media.expanded_by,
        )

    def _record_conversation(self, worker: Candidate, inputs: RoutingInputs) -> None:
        instance = worker.instance_id
        self._last_turn[instance] = next(self._turns)
        if inputs.hashes:
            # The prompt is in the worker's cache, or will be before a later request is computed.
            self._prefixes.add(worker.address, inputs.hashes)
        if inputs.conversation:
            self._conversations.put(inputs.conversation, instance)
        if inputs.adapter:
            self._adapters.put(inputs.adapter, instance)


def _hashes(submission: Submission) -> list[int]:
    scope = scope_of(submission.cache_salt or "", submission.lora.id, submission.data_parallel_rank)
    if submission.media is None:
        return prefix_hashes(submission.prompt_token_ids, scope)
    return prefix_hashes(submission.media.marked(submission.prompt_token_ids), scope)


def _reads_cache(params: pb.SamplingParams) -> bool:
    return not (params.skip_reading_prefix_cache or params.HasField("prompt_logprobs"))


def parse_revision_shares(values: tuple[str, ...]) -> dict[str, float]:
    """Return percentages by digest, from REVISION=PERCENT. Raises InvalidRequest."""
    shares: dict[str, float] = {}
    for value in values:
        digest, separator, percent = value.partition("=")
        try:
            share = float(percent)
        except ValueError:
            share = -1.0
        if not digest or not separator or not 0 <= share <= 100:
            raise InvalidRequest(f"--revision-share must be REVISION=PERCENT, with 0 to 100, not {value!r}")
        shares[digest] = share
    if sum(shares.values()) > 100:
        raise InvalidRequest("--revision-share: the shares are more than 100 percent together")
    return shares
