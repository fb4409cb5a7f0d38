"""Records the ids and text of a request's choices while they are generated, and stores each one at its end."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from tokenwire.coordinator.history.request_history import Message, RequestHistory
from tokenwire.coordinator.history.turns import Ending
from tokenwire.coordinator.output.choice import Reply
from tokenwire.coordinator.text.logprobs import ScoredPosition
from tokenwire.coordinator.types import Finish


@dataclass(slots=True)
class _Choice:
    """The recorded output of one choice."""

    texts: list[str] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
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

    def wrap(self, reply: Reply) -> Reply:
        """Return a reply that records its output and passes everything on."""
        return _StoredReply(self, reply)

    def on_delta(self, index: int, text: str, token_ids: Sequence[int], finish: Finish | None) -> None:
        """Record a choice's new output."""
        choice = self._choices[index]
        choice.token_ids += token_ids
        if not self._parsed:
            choice.texts.append(text)
        if finish is not None:
            choice.ending = self._ending(finish)
            if not self._parsed:
                self._store(index, [{"role": "assistant", "content": "".join(choice.texts)}])

    def keep(self, index: int, messages: Sequence[Message]) -> None:
        """Store a parsed choice that has ended, as the messages that the client will send back."""
        if self._parsed:
            self._store(index, messages)

    def _store(self, index: int, messages: Sequence[Message]) -> None:
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
