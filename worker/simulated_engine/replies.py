"""Finds the scripted reply to a prompt, and continues one that the prompt already ends with.

A request that moves to another engine, or that a trainer continues, has its tokens so far at the end of its prompt. So
a prompt that consists of another one and the beginning of the reply to that one gets the rest of this reply, and the
longest such beginning decides. What follows the reply is EOS, again and again where it must not end.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence

from tokenwire.errors import EngineFailed
from tokenwire.worker.simulated_engine.model import SimulatedModel
from tokenwire.worker.simulated_engine.reply_rules import ReplyRule
from tokenwire.worker.simulated_engine.tokens import Script

_SLICE = 4096
"""Tokens that are decoded without a break, which takes less than a millisecond."""
_MOST_STARTS = 64
"""Places in a prompt where a continued reply may begin. There are more only if replies begin with something common."""


class ScriptedReplies:
    """The replies of an operator's rules, with one model's tokens."""

    def __init__(self, rules: Sequence[ReplyRule], model: SimulatedModel) -> None:
        """Raises EngineFailed if the model has no EOS, without which no reply ends."""
        if model.eos_token_id is None:
            raise EngineFailed("--sim-replies needs a tokenizer with an EOS token, with which each reply ends")
        self._tokenizer = model.tokenizer()
        self._words = model.word_set
        self._eos = model.eos_token_id
        self._eos_text = self._decode([self._eos])
        self._rules = rules
        self._matchers = [rule.matcher() for rule in rules]

    async def find(self, prompt: list[int]) -> Script | None:
        """Return what is generated after a prompt, None if no rule is for it."""
        text = "".join([part async for part in self._decoded(prompt)])
        return self._continued(prompt, text) or self._begun(text)

    async def _decoded(self, prompt: list[int]) -> AsyncIterator[str]:
        """Yield the text of a prompt in parts, with other work in between; each ends with a whole character."""
        start = 0
        while start < len(prompt):
            end = min(start + _SLICE, len(prompt))
            while end < len(prompt) and prompt[end - 1] not in self._words:
                end += 1
            yield self._decode(prompt[start:end])
            await asyncio.sleep(0)
            start = end

    def _decode(self, ids: list[int]) -> str:
        text: str = self._tokenizer.decode(ids, skip_special_tokens=False)
        return text

    def _begun(self, text: str) -> Script | None:
        ids = self._reply_to(text)
        return None if ids is None else Script(tuple(ids), self._eos)

    def _reply_to(self, text: str) -> list[int] | None:
        """Return the ids of the reply to a prompt, without EOS."""
        for reply_to in self._matchers:
            reply = reply_to(text)
            if reply is not None:
                ids = self._tokenizer.encode(reply, add_special_tokens=False).ids
                return ids[: ids.index(self._eos)] if self._eos in ids else ids
        return None

    def _continued(self, prompt: list[int], text: str) -> Script | None:
        """Return the rest of the reply with whose beginning a prompt ends."""
        ended = next((i for i, token in enumerate(reversed(prompt)) if token != self._eos), len(prompt))
        for start in self._starts(text, bool(ended)):
            ids = self._reply_to(text[:start])
            if ids is None:
                continue
            whole = ids + [self._eos] * ended
            for done in range(min(len(whole), len(prompt) - 1), 0, -1):
                if _ends_with(prompt, whole, done) and self._decode(whole[:done]) == text[start:]:
                    return Script(tuple(ids[done:]), self._eos)
        return None

    def _starts(self, text: str, has_ended: bool) -> list[int]:
        """Return the places where a reply with which the text ends may begin, in order."""
        body = text
        while has_ended and body.endswith(self._eos_text):
            body = body.removesuffix(self._eos_text)
        # The last character may be incomplete.
        body = body.rstrip("\ufffd")
        first = body.rfind(self._eos_text) + len(self._eos_text) if self._eos_text in body else 0
        starts = {start for rule in self._rules for start in self._starts_of(rule, body, first)}
        if body != text:
            starts.add(len(body))
        return sorted(starts)[-_MOST_STARTS:]

    def _starts_of(self, rule: ReplyRule, body: str, first: int) -> Iterator[int]:
        """Yield the places from which on the body may be the beginning of a rule's reply."""
        head = rule.head.partition(self._eos_text)[0]
        if head:
            start = body.find(head[0], max(first, len(body) - len(head)) if rule.is_fixed else first)
            while start >= 0:
                if body.startswith(head[: len(body) - start], start):
                    yield start
                start = body.find(head[0], start + 1)


def _ends_with(prompt: list[int], reply: list[int], done: int) -> bool:
    """Return whether a prompt ends with so many tokens of a reply."""
    same_ends = prompt[-1] == reply[done - 1] and prompt[-done] == reply[0]
    return same_ends and prompt[-done:] == reply[:done]
