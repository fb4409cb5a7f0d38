"""One request's place in a conversation: what it continues, and where its replies are kept."""

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tokenwire.coordinator.history.digests import Transcript, reasoning_digest, reasoning_of
from tokenwire.coordinator.history.store import HistoryStore
from tokenwire.coordinator.history.turns import Ending, Reasoning, Turn

Source = Literal["required_prefix_token_ids", "message", "stored"]
Message = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Continuation:
    """An earlier turn and what follows it in the prompt."""

    turn: Turn
    position: int
    """Of the assistant message that the turn ends with."""
    tail: Sequence[int]
    source: Source


@dataclass(frozen=True, slots=True)
class Record:
    """Where the replies of a request go."""

    store: HistoryStore
    transcript: Transcript
    """The messages before the reply."""
    unfinished: Message | None
    """The message that the reply goes on with, and comes back as one with."""

    def messages(self, reply: Sequence[Message]) -> Sequence[Message] | None:
        """Return a reply as it comes back in later requests; None where that cannot be known."""
        if self.unfinished is None:
            return reply
        first = _continued(self.unfinished, reply[0])
        return None if first is None else [first, *reply[1:]]


class Conversation:
    """The conversation of one request."""

    def __init__(self, continued: Continuation | None, record: Record | None) -> None:
        """record: None keeps nothing."""
        self._continued = continued
        self._record = record
        self._prompt: Turn | None = None
        self.reused = 0
        """How many of the prompt's ids are those of an earlier prompt and completion."""
        self.token_ids: array[int] | None = None
        """The prompt; None where it has to be rendered and tokenized."""
        self.new_ids: Sequence[int] | None = None
        """Those behind the last reply that is over: with a message that is continued, all of it. None as above."""
        if continued is not None:
            self.token_ids = continued.turn.all_ids()
            self.reused = len(self.token_ids)
            self.token_ids.extend(continued.tail)
            self.new_ids = continued.tail or continued.turn.message_ids()

    @property
    def records(self) -> bool:
        """Whether replies are kept."""
        return self._record is not None

    @property
    def source(self) -> Source | None:
        """Where the ids that are used again came from."""
        return None if self._continued is None else self._continued.source

    def record(
        self, prompt: Sequence[int], reply: Sequence[Message], completion: Sequence[int], ending: Ending
    ) -> None:
        """Keep a finished reply behind the prompt, as the messages that it is when the client sends it back."""
        if self._record is None or not completion:
            return
        messages = self._record.messages(reply)
        if messages is None:
            return
        transcript = self._record.transcript
        if self._prompt is None:
            self._prompt = self._prompt_turn(transcript, prompt)
        reasoning = tuple(
            Reasoning(position, stated, ours=position > transcript.length or not self._begun_elsewhere(self._record))
            for position, message in enumerate(messages, transcript.length)
            if (stated := reasoning_digest(message)) is not None
        )
        turn = Turn(array("I", completion), self._prompt, ending, reasoning)
        self._record.store.put(transcript.reply_keys(messages), turn)

    def _begun_elsewhere(self, record: Record) -> bool:
        """Tell whether the reply goes on with a message whose reasoning was not generated here."""
        if record.unfinished is None or reasoning_digest(record.unfinished) is None:
            return False
        return self._continued is None or self._continued.position < record.transcript.length

    def _prompt_turn(self, transcript: Transcript, prompt: Sequence[int]) -> Turn:
        stated = tuple(
            Reasoning(position, given, ours=False)
            for position, given in transcript.reasoning.items()
            if self._continued is None or position > self._continued.position
        )
        if self._continued is None:
            return Turn(array("I", prompt), reasoning=stated)
        return Turn(array("I", self._continued.tail), self._continued.turn, reasoning=stated)


def _continued(begun: Message, reply: Message) -> Message | None:
    """Return a message and what was added to it as one; None where there is more than one way to join them."""
    text, more = begun.get("content") or "", reply.get("content") or ""
    if not isinstance(text, str):
        return None
    return {
        **begun,
        "content": text + more,
        "reasoning": (reasoning_of(begun) or "") + (reasoning_of(reply) or ""),
        "tool_calls": [*(begun.get("tool_calls") or ()), *(reply.get("tool_calls") or ())],
    }
