"""One choice of a reply: turns a slot's tokens into text, ends it at a stop string, and feeds its reply."""

from typing import Protocol

from coordinator.request import Finish
from tokenwire.errors import EngineFailed, TokenwireError
from tokenwire.v1 import inference_pb2 as pb

_REASONS = {
    pb.FINISH_REASON_STOP: "stop",
    pb.FINISH_REASON_LENGTH: "length",
    pb.FINISH_REASON_ABORT: "abort",
    pb.FINISH_REASON_REPETITION: "repetition",
}


class TextSource(Protocol):
    """Decodes one sequence; see coordinator.text.detokenizer."""

    def step(self, token_ids: list[int], stop_terminated: bool, finished: bool) -> tuple[str, int, str | None]:
        """Take tokens; return new text, how many of the tokens count, and the stop string that matched."""


class Reply(Protocol):
    """What a request's choices write to."""

    def first_tokens(self) -> None:
        """Hear that the engine has begun, before the first delta of any choice."""

    def delta(self, index: int, text: str, token_ids: list[int], finish: Finish | None) -> None:
        """Take what a choice gained in one step; with the finish, its last."""

    def fail(self, error: TokenwireError) -> None:
        """Hear that a choice, and so the reply, cannot be completed."""


class Choice:
    """Listens to one slot on behalf of one choice of a reply."""

    __slots__ = ("_begun", "_ended", "_index", "_reply", "_text")

    def __init__(self, index: int, text: TextSource, reply: Reply) -> None:
        self._index = index
        self._text = text
        self._reply = reply
        self._begun = False
        self._ended = False

    def prefilled(self, info: pb.PrefillInfo) -> None:
        """Hear how the prompt was computed."""

    def step(self, token_ids: list[int], finish: pb.Finish | None) -> bool:
        """Take the tokens of one frame. Returns True when a stop string ended the choice before the engine did."""
        if not self._begun:
            self._begun = True
            self._reply.first_tokens()
        if finish is None:
            text, kept, matched = self._text.step(token_ids, False, False)
            if matched is None:
                self._reply.delta(self._index, text, token_ids, None)
                return False
        elif finish.reason == pb.FINISH_REASON_ERROR:
            self.fail(EngineFailed(finish.error_message or "The engine failed on this request."))
            return False
        else:
            text, kept, matched = self._text.step(token_ids, finish.reason == pb.FINISH_REASON_STOP, True)
        self._ended = True
        ending = _ending(finish) if matched is None and finish is not None else Finish("stop", matched)
        self._reply.delta(self._index, text, token_ids[:kept], ending)
        return True

    def fail(self, error: TokenwireError) -> None:
        """Pass an error on, unless the choice has already ended."""
        if not self._ended:
            self._ended = True
            self._reply.fail(error)


def _ending(finish: pb.Finish) -> Finish:
    stop_id = finish.stop_token_id if finish.WhichOneof("matched") == "stop_token_id" else None
    return Finish(_REASONS.get(finish.reason, "stop"), stop_id)
