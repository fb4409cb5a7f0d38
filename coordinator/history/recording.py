"""Gathers what a request's choices are made of while they are generated, and keeps each one when it has ended."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from tokenwire.coordinator.history.conversation import Conversation, Message
from tokenwire.coordinator.history.turns import Ending
from tokenwire.coordinator.output.choice import Reply
from tokenwire.coordinator.text.logprobs import ScoredPosition
from tokenwire.coordinator.types import Finish


@dataclass(slots=True)
class _Heard:
    """What is known of one choice."""

    texts: list[str] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    ending: Ending = "cut"


class Recording:
    """The choices of one request. A text that no parser reads is its message; else whoever shows the message keeps it.

    What is kept is what the client got and will send back, not what the model said: the two are found by one key.
    """

    def __init__(
        self,
        conversation: Conversation,
        prompt: Sequence[int],
        choices: int,
        *,
        parsed: bool,
        stop_token_ids: Collection[int] = (),
    ) -> None:
        """stop_token_ids: those that the request asked for, which are no ends of the model's own."""
        self._conversation = conversation
        self._prompt = prompt
        self._heard = [_Heard() for _ in range(choices)]
        self._parsed = parsed
        self._stop_token_ids = stop_token_ids

    def listen(self, reply: Reply) -> Reply:
        """Return a reply that passes everything on, and is listened to."""
        return _HeardReply(self, reply)

    def hear(self, index: int, text: str, token_ids: Sequence[int], finish: Finish | None) -> None:
        """Take what a choice gained."""
        heard = self._heard[index]
        heard.token_ids += token_ids
        if not self._parsed:
            heard.texts.append(text)
        if finish is not None:
            heard.ending = self._ending(finish)
            if not self._parsed:
                self._keep(index, [{"role": "assistant", "content": "".join(heard.texts)}])

    def keep(self, index: int, messages: Sequence[Message]) -> None:
        """Keep a choice that a parser read and that has ended, as the messages that it is when it comes back."""
        if self._parsed:
            self._keep(index, messages)

    def _keep(self, index: int, messages: Sequence[Message]) -> None:
        heard = self._heard[index]
        self._conversation.record(self._prompt, messages, heard.token_ids, heard.ending)

    def _ending(self, finish: Finish) -> Ending:
        if finish.reason != "stop":
            return "cut"
        asked = isinstance(finish.stop_reason, str) or finish.stop_reason in self._stop_token_ids
        return "stop" if asked else "token"


class _HeardReply:
    def __init__(self, recording: Recording, reply: Reply) -> None:
        self._recording = recording
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
        self._recording.hear(index, text, token_ids, finish)
        self._reply.delta(index, text, token_ids, finish, logprobs)
