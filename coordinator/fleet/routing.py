"""The choice of a worker for a request: the one where its first token costs the least."""

import itertools
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Generic, Literal, Protocol, TypeVar

from tokenwire.coordinator.fleet.prefix_index import PrefixIndex
from tokenwire.coordinator.fleet.request_handle import Placement
from tokenwire.coordinator.fleet.ttl_cache import TTLCache
from tokenwire.coordinator.fleet.workload import Workload
from tokenwire.prefix_hash import BLOCK_TOKENS, prefix_hashes, scope_of
from tokenwire.v1 import inference_pb2 as pb

Policy = Literal["affinity", "load", "round-robin"]

SESSION_TOKENS = 512
"""What the worker of a session's last request is preferred by: it may hold more of it than was sent there."""
ADAPTER_TOKENS = 256
"""What a worker is preferred by that used the adapter last: another may have to load it."""
_SESSIONS, _SESSION_TTL_S = 65_536, 1800.0
_ADAPTERS, _ADAPTER_TTL_S = 1024, 300.0


class Candidate(Protocol):
    """What is asked of a worker's session."""

    @property
    def address(self) -> str:
        """Where the worker listens."""

    @property
    def instance_id(self) -> str:
        """Names the worker's process."""

    @property
    def workload(self) -> Workload:
        """What it has to do."""


W = TypeVar("W", bound=Candidate)
WCo = TypeVar("WCo", bound=Candidate, covariant=True)


@dataclass(frozen=True, slots=True)
class Question:
    """What the choice depends on beside the workers' load."""

    tokens: int
    """Length of the prompt."""
    hashes: Sequence[int] = ()
    """Names of its prefixes."""
    cached: Mapping[str, int] = field(default_factory=dict)
    """How many leading tokens workers hold, by instance id."""
    session: bytes = b""
    session_worker: str | None = None
    adapter: int = 0
    adapter_worker: str | None = None


@dataclass(frozen=True, slots=True)
class Decision(Generic[WCo]):
    """A worker and what spoke for it. All figures are prompt tokens to compute."""

    worker: WCo
    question: Question
    ahead: int
    """Work ahead of the request, when it was sent."""
    rivals: int
    """Other workers that could have taken it."""
    policy: Policy

    @property
    def cached(self) -> int:
        """Tokens of the prompt that the worker is believed to hold: of these, the last one is computed in any case."""
        return min(self.question.cached.get(self.worker.instance_id, 0), max(0, self.question.tokens - 1))

    @property
    def new(self) -> int:
        """Tokens of the prompt that the worker has to compute."""
        return self.question.tokens - self.cached

    def explain(self) -> str:
        """Say which worker it was and why, on one line."""
        return f'{self.worker.address}; cached={self.cached}; ahead={self.ahead}; why="{self._why()}"'

    def _why(self) -> str:
        question, instance = self.question, self.worker.instance_id
        if not self.rivals:
            return "no other can take it"
        if self.policy != "affinity":
            return "least sequences" if self.policy == "load" else "its turn"
        reasons = [
            (self.cached > 0, "holds a part of the prompt"),
            (question.session_worker == instance, "had the session last"),
            (question.adapter_worker == instance, "used the adapter last"),
        ]
        return ", ".join(reason for holds, reason in reasons if holds) or "least work ahead"


class Router:
    """Scores workers by `cost`; among equals the one that waited longest is taken."""

    def __init__(self, policy: Policy = "affinity") -> None:
        self._policy = policy
        self._turns = itertools.count()
        self._last_turn: dict[str, int] = {}
        self._prefixes = PrefixIndex()
        self._sessions = TTLCache(_SESSIONS, _SESSION_TTL_S)
        self._adapters = TTLCache(_ADAPTERS, _ADAPTER_TTL_S)
        self._caches: dict[str, tuple[str, str]] = {}
        """Whose cache it is that the index knows of, by address."""
        # Sessions are secrets of their clients: what is kept of them cannot be read back.
        self._secret = os.urandom(16)

    def choose(self, candidates: Sequence[W], submit: pb.Submit, placement: Placement) -> Decision[W]:
        """Choose among workers that can take a request; there is at least one."""
        wanted = [worker for worker in candidates if worker.instance_id not in placement.avoid] or candidates
        question = self._question(submit)
        chosen = wanted[0] if len(wanted) == 1 else self._cheapest(wanted, question)
        decision = Decision(chosen, question, chosen.workload.ahead(), len(wanted) - 1, self._policy)
        self._remember(decision)
        return decision

    def _cheapest(self, workers: Sequence[W], question: Question) -> W:
        return min(workers, key=lambda each: (self.cost(each, question), self._last_turn.get(each.instance_id, -1)))

    def cost(self, worker: Candidate, question: Question) -> int:
        """Return what a request's first token costs there, in prompt tokens to compute."""
        if self._policy == "round-robin":
            return 0
        if self._policy == "load":
            return worker.workload.sequences
        instance = worker.instance_id
        cost = question.tokens - question.cached.get(instance, 0) + worker.workload.ahead()
        if instance == question.session_worker:
            cost -= SESSION_TOKENS
        if instance == question.adapter_worker:
            cost -= ADAPTER_TOKENS
        return cost

    def on_worker_state(self, worker: Candidate, weights: str) -> None:
        """Hear of a worker, and of its weights: with another process or other weights its cache is an empty one."""
        cache = worker.instance_id, weights
        known = self._caches.get(worker.address)
        if known != cache:
            if known is not None:
                self._prefixes.forget(known[0])
                if known[0] != worker.instance_id:
                    self._last_turn.pop(known[0], None)
            self._caches[worker.address] = cache

    def on_cache_change(self, worker: Candidate, change: pb.CacheChange) -> None:
        """Hear what a worker's cache stored and dropped."""
        if self._policy == "affinity":
            if change.cleared:
                self._prefixes.forget(worker.instance_id)
            self._prefixes.remove(worker.instance_id, change.removed)
            self._prefixes.add(worker.instance_id, change.stored)

    def forget(self, worker: Candidate) -> None:
        """Forget a worker that does not come back."""
        self._caches.pop(worker.address, None)
        self._last_turn.pop(worker.instance_id, None)
        self._prefixes.forget(worker.instance_id)

    def _question(self, submit: pb.Submit) -> Question:
        tokens, adapter = len(submit.prompt_token_ids), submit.lora.id
        # Where there is only one worker there is nothing to choose, and hashes would cost for nothing.
        if self._policy != "affinity" or len(self._caches) < 2:
            return Question(tokens)
        hashes = _hashes(submit) if tokens >= BLOCK_TOKENS else ()
        session = b""
        if submit.session_id:
            session = blake2b(submit.session_id.encode(), key=self._secret, digest_size=16).digest()
        return Question(
            tokens=tokens,
            hashes=hashes,
            cached=self._prefixes.match(hashes) if hashes and _reads_cache(submit.sampling_params) else {},
            session=session,
            session_worker=self._sessions.get(session) if session else None,
            adapter=adapter,
            adapter_worker=self._adapters.get(adapter) if adapter else None,
        )

    def _remember(self, decision: Decision[Candidate]) -> None:
        instance, question = decision.worker.instance_id, decision.question
        self._last_turn[instance] = next(self._turns)
        if question.hashes:
            # What was sent there is there, or will be before a request that follows is computed.
            self._prefixes.add(instance, question.hashes)
        if question.session:
            self._sessions.put(question.session, instance)
        if question.adapter:
            self._adapters.put(question.adapter, instance)


def _hashes(submit: pb.Submit) -> list[int]:
    rank = submit.data_parallel_rank if submit.HasField("data_parallel_rank") else None
    return prefix_hashes(submit.prompt_token_ids[:], scope_of(submit.cache_salt, submit.lora.id, rank))


def _reads_cache(params: pb.SamplingParams) -> bool:
    return not (params.skip_reading_prefix_cache or params.HasField("prompt_logprobs"))
