"""Finds out, for requests of sessions, where their prompts left the last ones, and why caches were missed."""

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tokenwire.coordinator.history.digests import text_hash
from tokenwire.coordinator.history.prompt_digest import (
    BLOCK_TOKENS,
    SHOWN_CHARS,
    PromptDigest,
    digest_prompt,
    text_at_difference,
)
from tokenwire.coordinator.history.request_history import RequestHistory, SentReplies
from tokenwire.coordinator.observability.record import PrefixCause, PrefixDivergence, RequestRecord
from tokenwire.coordinator.output.choice import Reply
from tokenwire.coordinator.text.template.content_format import ContentFormat
from tokenwire.coordinator.types import ChatPrompt, Prefill, Prompt, ServedModel
from tokenwire.process.fair_memory import FairMemory

MAX_BYTES, _TTL_S = 16 * 1024 * 1024, 1800.0
_BRANCHES = 4
"""Prompts of a session that are kept: an agent's own, and those of its helpers."""
_ENTRY_BYTES = 600
_OF_IDS = frozenset[PrefixCause](("edited", "branch", "compacted", "template"))
"""Causes that ids show, where no message does."""
_BEGIN = frozenset[PrefixCause](("branch", "compacted", "model", "salt"))
"""Causes with which a branch begins; the one before may go on, also after what may as well be a helper's prompt."""
_COMPACTED = 0.6
"""A prompt that begins as the last one, leaves it, and is shorter by this factor, was compacted."""


@dataclass(slots=True)
class Branch:
    """The last prompt of one line of a session."""

    digest: PromptDigest
    model: str
    salt: str | None
    adapter_id: int = 0
    sent: SentReplies | None = None
    """Its replies; None if they are not stored."""
    worker: str = ""
    weights: str = ""

    @property
    def size_bytes(self) -> int:
        """Its approximate memory."""
        return self.digest.size_bytes + (0 if self.sent is None else self.sent.size_bytes)


class PrefixWatch:
    """Keeps hashes of the last prompts of sessions, bounded in bytes and time."""

    def __init__(
        self, max_bytes: int = MAX_BYTES, ttl_s: float = _TTL_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.causes: defaultdict[str, Counter[str]] = defaultdict(Counter)
        """How many requests of sessions had each cause, by model."""
        self._sessions = FairMemory[Hashable, Sequence[Branch]](max_bytes, ttl_s, clock)
        """The branches of each, the last one last; nobody has a share of his own."""

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def size(self) -> int:
        """Bytes in use."""
        return self._sessions.size

    def branches(self, key: Hashable) -> Sequence[Branch]:
        """Return the last prompts of a session."""
        return self._sessions.find(key) or ()

    def put(self, key: Hashable, branch: Branch, replaced: Branch | None) -> None:
        """Keep a prompt, in place of the one that it continues."""
        kept = [each for each in self.branches(key) if each is not replaced][1 - _BRANCHES :]
        branches = [*kept, branch]
        self._sessions.put(key, branches, "", _ENTRY_BYTES + sum(each.size_bytes for each in branches))


class WatchedPrompt:
    """One request of a session: its prompt is compared while its worker computes it, which then says what it had."""

    def __init__(self, watch: PrefixWatch, record: RequestRecord, tenant: str, session_id: str, prompt: Prompt) -> None:
        self._watch = watch
        self._prompt = prompt
        self._record = record
        self._key = tenant, session_id
        self._old: Branch | None = None
        self._new: Branch | None = None
        self._common = 0
        """Tokens that the prompts have in common, in whole blocks."""
        self._found: PrefixDivergence | None = None

    def wrap(self, reply: Reply) -> Reply:
        """Return a reply that passes everything on."""
        return _WatchedReply(self, reply)

    def compare(
        self, model: ServedModel, token_ids: Sequence[int], salt: str | None, history: RequestHistory | None
    ) -> None:
        """Compare the prompt with the last ones. To be called once it was submitted, so that nobody waits for it."""
        messages: Sequence[Mapping[str, Any]] = ()
        form: ContentFormat = "string"
        if isinstance(self._prompt, ChatPrompt):
            messages, form = self._prompt.messages, model.template.identity(self._prompt.options)[1]
        known = self._watch.branches(self._key)
        digest = digest_prompt(messages, form, token_ids, [each.digest for each in known])
        self._new = new = Branch(digest, model.name, salt, model.adapter_id, None if history is None else history.sent)
        likeness = digest.alike if messages else digest.alike_ids
        own = [each for each in known if (each.model, each.salt) == (new.model, salt)]  # only there is anything cached
        self._old = old = max(reversed(own or known), key=lambda each: likeness(each.digest), default=None)
        if old is not None:
            self._common = digest.common_tokens(old.digest)
            self._found = self._difference(old, new, messages, form) or self._edited_reply(old, history)
            if self._found is not None and self._found.cause in _OF_IDS and not self._found.text:
                shown = token_ids[self._common : self._common + BLOCK_TOKENS]
                self._found = replace(self._found, text=model.tokenizer.decode(shown, False)[: 2 * SHOWN_CHARS])

    def prefilled(self, cached: int) -> None:
        """Complete the explanation by how much of the prompt its worker had, and keep the prompt: only now it is cached
        there.
        """
        old, new, session = self._old, self._new, self._record.session
        if new is None or session is None or new.worker:
            return
        new.worker = session.instance_id
        new.weights = f"{session.serving.weights_epoch} {session.serving.weight_version} {new.adapter_id}"
        begins = self._found is not None and self._found.cause in _BEGIN
        self._watch.put(self._key, new, None if begins else old)
        if old is None:
            return
        block = session.capabilities.cache_block_tokens
        found = self._found or PrefixDivergence(self._loss(old, new, cached, block), token=self._common)
        self._record.divergence = found
        self._watch.causes[self._record.model][found.cause] += 1

    def _difference(
        self, old: Branch, new: Branch, messages: Sequence[Mapping[str, Any]], form: ContentFormat
    ) -> PrefixDivergence | None:
        """Return how two prompts differ; None if one begins with the other."""
        place, same = new.digest.alike(old.digest)
        if (old.model, old.salt) != (new.model, new.salt):
            changed: PrefixCause = "salt" if old.model == new.model else "model"
            return PrefixDivergence(changed if place or not messages else "branch", token=self._common)
        if place < min(len(messages), len(old.digest.messages)):
            text = text_at_difference(messages[place], place, form, new.digest.pieces[place], old.digest.pieces[place])
            goes_on = _goes_on(old, new.digest, messages, form, place)
            # Nested agents and titles have messages of the session too.
            same = same if goes_on or _is_version(old, new.digest, messages, place) else place
            cause = _kind(old.digest, new.digest, place, same)
            is_last = place == len(old.digest.messages) - 1
            if goes_on and (cause == "branch" or is_last):
                cause = "edited"
            return PrefixDivergence(cause, place, text, self._common)
        blocks = min(len(old.digest.blocks), len(new.digest.blocks))
        # Less than a block may be different: where the last prompt ended, a template may have begun the reply.
        if self._common >= BLOCK_TOKENS * (blocks - 1):
            return None
        if messages:
            return PrefixDivergence("template", token=self._common)
        first, same = new.digest.alike_ids(old.digest)
        return PrefixDivergence(_kind(old.digest, new.digest, first, same), token=self._common)

    def _edited_reply(self, old: Branch, history: RequestHistory | None) -> PrefixDivergence | None:
        """Return that a prompt begins as the last one and goes on with another reply than was sent; None if not."""
        position = len(old.digest.messages)
        if old.sent is None or history is None or not history.edits(old.sent, position):
            return None
        return PrefixDivergence("edited", position, token=self._common)

    def _loss(self, old: Branch, new: Branch, cached: int, block: int) -> PrefixCause:
        """Return why a prompt that begins as the last one was not found in the cache; none if it was."""
        most = min(self._common, new.digest.tokens - 1)  # engines compute the last token anew, and so its whole block
        if cached + BLOCK_TOKENS >= most - most % (block or 1):
            return "none"
        if old.worker != new.worker:
            return "other_worker"
        return "evicted" if old.weights == new.weights else "weights"


def _kind(old: PromptDigest, new: PromptDigest, first: int, same: int) -> PrefixCause:
    """Return how a prompt differs from the last one, with the number of parts (messages or blocks) that are equal from
    the first on, and of those that are equal at all.
    """
    if same > first:
        return "edited"
    return "compacted" if first and new.tokens < _COMPACTED * old.tokens else "branch"


def _goes_on(
    old: Branch, new: PromptDigest, messages: Sequence[Mapping[str, Any]], form: ContentFormat, place: int
) -> bool:
    """Return whether a prompt that leaves the last one at a place goes on with its end: with a reply to it, or with its
    last two messages, though at another place.
    """
    replies = (at for at in range(len(messages) - 1, place - 1, -1) if messages[at].get("role") == "assistant")
    last_reply, end = next(replies, None), old.digest.pieces[-2:]
    sent = set[int]() if old.sent is None else old.sent.texts
    if last_reply is not None and text_hash(messages[last_reply], last_reply, form) in sent:
        return True
    return len(end) == 2 and any(new.pieces[at : at + 2] == end for at in range(place, len(messages) - 1))


def _is_version(old: Branch, new: PromptDigest, messages: Sequence[Mapping[str, Any]], place: int) -> bool:
    """Return whether the message at a place is another version of the last prompt's, by half of its text; or, where
    replies are not known, whether what is behind it is the last prompt's to its end and a reply.
    """
    before, after = old.digest.pieces[place], new.pieces[place]
    shared = {*before[1:]} & {*after[1:]}
    if shared and before[0] == after[0] and 2 * len(shared) >= len({*after[1:]}):
        return True
    end = len(old.digest.pieces)
    if old.sent is not None or old.digest.pieces[place + 1 :] != new.pieces[place + 1 : end]:
        return False
    return len(messages) > end and messages[end].get("role") == "assistant"


class _WatchedReply:
    def __init__(self, watched: WatchedPrompt, reply: Reply) -> None:
        self._watched = watched
        self._reply = reply
        self.first_tokens = reply.first_tokens
        self.tokens_of = reply.tokens_of
        self.delta = reply.delta
        self.fail = reply.fail

    def prefilled(self, index: int, prefill: Prefill) -> None:
        self._watched.prefilled(prefill.cached_tokens)
        self._reply.prefilled(index, prefill)
