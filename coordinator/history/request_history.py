"""One request's place in a conversation: the turn that it continues, and how and where its replies are stored."""

from array import array
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from tokenwire.coordinator.history.digests import Transcript, reasoning_digest, reasoning_of, text_hash
from tokenwire.coordinator.history.store import HistoryStore
from tokenwire.coordinator.history.turns import Ending, MessageReasoning, Turn
from tokenwire.coordinator.output.choice import Reply
from tokenwire.coordinator.text.logprobs import ScoredPosition
from tokenwire.coordinator.text.template.messages import ChatMessage
from tokenwire.coordinator.types import Finish

Source = Literal["required_prefix_token_ids", "message", "stored"]

_SENT_BYTES, _KEY_BYTES = 200, 64


@dataclass(frozen=True, slots=True)
class Continuation:
    """An earlier turn and what follows it in the prompt."""

    turn: Turn
    position: int
    """Position of the assistant message with which the turn ends."""
    tail: Sequence[int]
    source: Source


@dataclass(frozen=True, slots=True)
class Destination:
    """Where the replies of a request are stored."""

    store: HistoryStore
    transcript: Transcript
    """The messages before the reply."""
    unfinished: Mapping[str, Any] | None
    """The message that the reply continues; clients send both back as one."""
    share: str = ""
    """Whose memory they take."""

    def messages(self, reply: Sequence[ChatMessage]) -> Sequence[ChatMessage] | None:
        """Return a reply as later requests will contain it; None if that cannot be known."""
        if self.unfinished is None:
            return reply
        first = _joined(self.unfinished, reply[0])
        return None if first is None else [first, *reply[1:]]


@dataclass(frozen=True, slots=True)
class SentReplies:
    """The keys of a request's replies, which tell whether a client sends them back as it got them."""

    scope: bytes
    choices: int
    keys: list[bytes] = field(default_factory=list)
    """Of those that have ended: with and without reasoning."""
    texts: set[int] = field(default_factory=set)
    """Hashes of their last messages, whatever comes before them."""

    @property
    def size_bytes(self) -> int:
        """Their approximate memory, once all have ended."""
        return _SENT_BYTES + 3 * _KEY_BYTES * self.choices


class RequestHistory:
    """What one request reuses of its conversation, and adds to it."""

    def __init__(self, continued: Continuation | None, destination: Destination | None) -> None:
        """`destination`: None stores nothing."""
        self._continued = continued
        self._destination = destination
        self._prompt: Turn | None = None
        self.sent: SentReplies | None = None
        """What its writer stores; None without one."""
        self.reused = 0
        """Number of the prompt's ids that come from an earlier prompt and completion."""
        self.token_ids: array[int] | None = None
        """The prompt; None if it has to be rendered and tokenized."""
        self.new_ids: Sequence[int] | None = None
        """The ids after the last finished reply, with all of a message that is continued; None as above."""
        if continued is not None:
            self.token_ids = continued.turn.all_ids()
            self.reused = len(self.token_ids)
            self.token_ids.extend(continued.tail)
            self.new_ids = continued.tail or continued.turn.message_ids()

    @property
    def position(self) -> int | None:
        """The position of the message that the reused ids end with; None without any."""
        return None if self._continued is None else self._continued.position

    def anew(self) -> "RequestHistory":
        """Return what reuses no ids, and stores what this would."""
        return RequestHistory(None, self._destination)

    @property
    def is_stored(self) -> bool:
        """Whether replies are stored."""
        return self._destination is not None

    def writer(
        self, prompt: Sequence[int], choices: int, *, parsed: bool, end_token_ids: Collection[int]
    ) -> "HistoryWriter | None":
        """Return what stores the choices of the reply to a prompt; None if they are not stored."""
        if self._destination is None:
            return None
        self.sent = SentReplies(self._destination.transcript.scope, choices)
        return HistoryWriter(self, prompt, choices, parsed=parsed, end_token_ids=end_token_ids)

    def edits(self, sent: SentReplies, position: int) -> bool:
        """Return whether the reply at a position, where an earlier request had its own, is none of those."""
        if self._destination is None or not sent.keys or (self.position is not None and self.position >= position):
            return False
        transcript = self._destination.transcript
        places = [place for place in transcript.replies if place >= position]
        if transcript.scope != sent.scope or position not in places:
            return False
        return not any(transcript.key(place) in sent.keys for place in places)

    @property
    def source(self) -> Source | None:
        """Source of the reused ids."""
        return None if self._continued is None else self._continued.source

    def store(
        self, prompt: Sequence[int], reply: Sequence[ChatMessage], completion: Sequence[int], ending: Ending
    ) -> None:
        """Store a finished reply after the prompt, keyed by the messages as the client will send them back."""
        if self._destination is None or not completion:
            return
        messages = self._destination.messages(reply)
        if messages is None:
            return
        destination, transcript = self._destination, self._destination.transcript
        if self._prompt is None:
            self._prompt = self._prompt_turn(transcript, prompt)
        reasoning = tuple(
            MessageReasoning(position, stated, generated=position > transcript.length or not self._given(destination))
            for position, message in enumerate(messages, transcript.length)
            if (stated := reasoning_digest(message)) is not None
        )
        turn = Turn(array("I", completion), self._prompt, ending, reasoning)
        keys = transcript.reply_keys(messages)
        destination.store.put(keys, turn, destination.share)
        if self.sent is not None:
            self.sent.keys.extend(keys)
            self.sent.texts.add(text_hash(messages[-1], transcript.length, transcript.form))

    def _given(self, destination: Destination) -> bool:
        """Return whether the reply continues a message whose reasoning was not generated here."""
        if destination.unfinished is None or reasoning_digest(destination.unfinished) is None:
            return False
        return self._continued is None or self._continued.position < destination.transcript.length

    def _prompt_turn(self, transcript: Transcript, prompt: Sequence[int]) -> Turn:
        stated = tuple(
            MessageReasoning(position, given, generated=False)
            for position, given in transcript.reasoning.items()
            if self._continued is None or position > self._continued.position
        )
        if self._continued is None:
            return Turn(array("I", prompt), reasoning=stated)
        return Turn(array("I", self._continued.tail), self._continued.turn, reasoning=stated)


def _joined(unfinished: Mapping[str, Any], reply: ChatMessage) -> ChatMessage | None:
    """Return a message and its continuation as one message; None if there is more than one way to join them."""
    text, more = unfinished.get("content") or "", reply.get("content") or ""
    if not isinstance(text, str):
        return None
    return {
        **unfinished,
        "content": text + more,
        "reasoning": (reasoning_of(unfinished) or "") + (reasoning_of(reply) or ""),
        "tool_calls": [*(unfinished.get("tool_calls") or ()), *(reply.get("tool_calls") or ())],
    }


@dataclass(slots=True)
class _Choice:
    """The recorded output of one choice."""

    text: bytearray = field(default_factory=bytearray)
    """In UTF-8: a list of short texts takes ten times as much."""
    token_ids: "array[int]" = field(default_factory=partial(array, "I"))
    ending: Ending = "cut"


class HistoryWriter:
    """The choices of one request. Unparsed text is the message itself; a parsed message is stored by its route.

    Stored are the messages that the client received and will send back, with the ids that the model generated.
    """

    def __init__(
        self,
        history: RequestHistory,
        prompt: Sequence[int],
        choices: int,
        *,
        parsed: bool,
        end_token_ids: Collection[int] = (),
    ) -> None:
        """`end_token_ids`: the model's own, as distinct from stop tokens of the request."""
        self._history = history
        self._prompt = prompt
        self._choices = [_Choice() for _ in range(choices)]
        self._parsed = parsed
        self._end_token_ids = end_token_ids
        self.on_message: Callable[[int, Sequence[ChatMessage]], None] | None = None
        """Called with each choice whose text is its message."""

    def wrap(self, reply: Reply) -> Reply:
        """Return a reply that records its output and passes everything on."""
        return _StoredReply(self, reply)

    def on_delta(self, index: int, text: str, token_ids: Sequence[int], finish: Finish | None) -> None:
        """Record a choice's new output."""
        choice = self._choices[index]
        choice.token_ids.extend(token_ids)
        if not self._parsed:
            choice.text += text.encode()
        if finish is not None:
            choice.ending = self._ending(finish)
            if not self._parsed:
                messages: list[ChatMessage] = [{"role": "assistant", "content": choice.text.decode()}]
                if self.on_message is not None:
                    self.on_message(index, messages)
                self._store(index, messages)

    def keep(self, index: int, messages: Sequence[ChatMessage]) -> None:
        """Store a parsed choice that has ended, as the messages that the client will send back."""
        if self._parsed:
            self._store(index, messages)

    def _store(self, index: int, messages: Sequence[ChatMessage]) -> None:
        choice = self._choices[index]
        self._history.store(self._prompt, messages, choice.token_ids, choice.ending)

    def _ending(self, finish: Finish) -> Ending:
        if finish.reason != "stop":
            return "cut"
        return "token" if finish.stop_reason is None or finish.stop_reason in self._end_token_ids else "stop"


class _StoredReply:
    def __init__(self, writer: HistoryWriter, reply: Reply) -> None:
        self._writer = writer
        self._reply = reply
        self.prefilled = reply.prefilled
        self.first_tokens = reply.first_tokens
        self.tokens_of = reply.tokens_of
        self.fail = reply.fail

    def delta(
        self,
        index: int,
        text: str,
        token_ids: list[int],
        finish: Finish | None,
        logprobs: list[ScoredPosition] | None = None,
    ) -> None:
        self._writer.on_delta(index, text, token_ids, finish)
        self._reply.delta(index, text, token_ids, finish, logprobs)
