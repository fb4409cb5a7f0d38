"""Finds the turn that a chat request continues, and assembles its prompt from that turn's ids and a new tail."""

from array import array
from itertools import islice

from tokenwire.coordinator.history.digests import Transcript, digest
from tokenwire.coordinator.history.request_history import Continuation, Destination, RequestHistory, Source
from tokenwire.coordinator.history.store import HistoryStore
from tokenwire.coordinator.history.tail import TailRenderer, Target
from tokenwire.coordinator.history.turns import Ending, Turn
from tokenwire.coordinator.types import ChatPrompt, ExactHistory, KnownPrefix, ServedModel

# Candidates whose tail is tried: if two have none that is certain, the template is the reason.
_MAX_TRIES = 2


class TokenHistory:
    """Access to the stored turns of earlier requests."""

    def __init__(self, store: HistoryStore) -> None:
        self._store = store
        self._tails = TailRenderer()

    async def close(self) -> None:
        """Close the store."""
        await self._store.close()

    async def open(self, prompt: ChatPrompt, model: ServedModel) -> RequestHistory:
        """Return what a prompt reuses of its conversation, with the turn that it continues.

        Ids from the client take precedence over stored ones; without either the prompt is rendered by the template.
        """
        if not prompt.messages:
            return RequestHistory(None, None)
        history = prompt.history or ExactHistory()
        template, form = model.template.identity(prompt.options)
        target = Target(model, prompt.options, digest(template))
        if history.prefix is not None:
            continued = await self._after_prefix(prompt, history.prefix, target)
            if continued is not None:
                return RequestHistory(continued, None)
        scope = digest(
            [target.template_key, model.name, model.tokenizer_digest],
            [history.tenant, history.cache_salt, history.conversation_id],
        )
        transcript = Transcript(scope, prompt.messages, form, prompt.options.tools)
        stored = await self._find_stored(prompt, transcript, target, history.tenant) if transcript.replies else None
        unfinished = None
        if prompt.options.continue_final_message:
            unfinished = prompt.messages[-1]
            transcript = Transcript(scope, prompt.messages[:-1], form, prompt.options.tools)
        kept = history.keeps and not (history.prefix is not None and history.prefix.required)
        return RequestHistory(
            stored, Destination(self._store, transcript, unfinished, history.tenant) if kept else None
        )

    async def _after_prefix(self, prompt: ChatPrompt, prefix: KnownPrefix, target: Target) -> Continuation | None:
        if prefix.message is None or not prefix.token_ids:
            return None
        turn = Turn(array("I", prefix.token_ids), ending=_guessed_ending(prefix, target.model))
        tail = await self._tail(turn, prefix.message, prompt, target)
        source: Source = "required_prefix_token_ids" if prefix.required else "message"
        return None if tail is None else Continuation(turn, prefix.message, tail, source)

    async def _find_stored(
        self, prompt: ChatPrompt, transcript: Transcript, target: Target, tenant: str
    ) -> Continuation | None:
        positions = transcript.replies
        turns = await self._store.find([transcript.key(position) for position in positions], tenant)
        candidates = (
            (turn, position)
            for turn, position in zip(turns, positions, strict=True)
            if turn is not None and turn.agrees(transcript.reasoning, position)
        )
        for turn, position in islice(candidates, _MAX_TRIES):
            tail = await self._tail(turn, position, prompt, target)
            if tail is not None:
                return Continuation(turn, position, tail, "stored")
        return None

    async def _tail(self, turn: Turn, position: int, prompt: ChatPrompt, target: Target) -> list[int] | None:
        if prompt.options.continue_final_message and position == len(prompt.messages) - 1:
            return [] if turn.ending == "cut" else None
        return await self._tails.ids_after(turn, prompt.messages, position, target)


def _guessed_ending(prefix: KnownPrefix, model: ServedModel) -> Ending:
    last = model.tokenizer.added_token_ids.get(prefix.token_ids[-1])
    return "token" if last is not None and last == model.tokenizer.special_tokens.get("eos_token") else "unknown"
