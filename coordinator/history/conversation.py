"""One request's place in a conversation: what it continues, and where its replies are kept."""

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from coordinator.history.keys import Transcript, reasoning_digest
from coordinator.history.store import HistoryStore
from coordinator.history.turns import Ending, Reasoning, Turn

Source = Literal["required_prefix_token_ids", "message", "stored"]


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
    unfinished: Mapping[str, Any] | None
    """The message that the reply goes on with, and comes back as one with."""

    def message(self, reply: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Return a reply as it comes back in later requests; None where that cannot be known."""
        if self.unfinished is None:
            return reply
        begun, added = self.unfinished.get("content"), reply.get("content")
        if (
            self.unfinished.get("role") != "assistant"
            or not isinstance(begun, str)
            or reply.keys() != {"role", "content"}
        ):
            return None
        return {**self.unfinished, "content": begun + (added or "")}


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
        if continued is not None:
            self.token_ids = continued.turn.all_ids()
            self.reused = len(self.token_ids)
            self.token_ids.extend(continued.tail)

    @property
    def records(self) -> bool:
        """Whether replies are kept."""
        return self._record is not None

    @property
    def source(self) -> Source | None:
        """Where the ids that are used again came from."""
        return None if self._continued is None else self._continued.source

    def record(
        self, prompt: Sequence[int], reply: Mapping[str, Any], completion: Sequence[int], ending: Ending
    ) -> None:
        """Keep a finished reply, as the message that the client got, behind the prompt."""
        if self._record is None or not completion:
            return
        message = self._record.message(reply)
        if message is None:
            return
        transcript = self._record.transcript
        if self._prompt is None:
            self._prompt = self._prompt_turn(transcript, prompt)
        stated = reasoning_digest(message)
        reasoning = () if stated is None else (Reasoning(transcript.length, stated, ours=True),)
        turn = Turn(array("I", completion), self._prompt, ending, reasoning)
        self._record.store.put(transcript.reply_keys(message), turn)

    def _prompt_turn(self, transcript: Transcript, prompt: Sequence[int]) -> Turn:
        known = -1 if self._continued is None else self._continued.position
        stated = tuple(
            Reasoning(position, given, ours=False)
            for position, given in transcript.reasoning.items()
            if position > known
        )
        if self._continued is None:
            return Turn(array("I", prompt), reasoning=stated)
        return Turn(array("I", self._continued.tail), self._continued.turn, reasoning=stated)
