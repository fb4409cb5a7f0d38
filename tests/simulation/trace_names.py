"""What passes over a gRPC connection, in words: calls, streams, and the positions of their tokens."""

from functools import cache
from typing import Any

from google.protobuf import text_format
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from tokenwire.protocol.packed_ids import prompt_ids
from tokenwire.v1 import control_pb2
from tokenwire.v1 import inference_pb2 as pb

_SERVICES = {
    service.full_name: service
    for file in (pb.DESCRIPTOR, control_pb2.DESCRIPTOR)
    for service in file.services_by_name.values()
}
_LONGEST = 300


@cache
def _method(path: str) -> MethodDescriptor | None:
    service, _, name = path.removeprefix("/").partition("/")
    return _SERVICES[service].methods_by_name[name] if service in _SERVICES else None


class _Stream:
    """A sequence in a slot: its name, and the position of its next token, counted from the start of the prompt."""

    def __init__(self, name: str, position: int) -> None:
        self.name = name
        self.position = position

    def tokens(self, token_ids: list[int]) -> str:
        """Return its next tokens in words."""
        first, self.position = self.position, self.position + len(token_ids)
        last = "" if len(token_ids) < 2 else f"..{self.position - 1}"
        return f"{self.name} at {first}{last}: {' '.join(map(str, token_ids))}" if token_ids else self.name


class TraceNames:
    """Describes the messages of one connection, each once and in order."""

    def __init__(self) -> None:
        self._methods: dict[int, str] = {}
        """By the number of the call."""
        self._streams: dict[tuple[int, int], _Stream] = {}
        """By call and slot."""

    def describe(self, to_server: bool, kind: str, number: int, *rest: Any) -> str:
        """Return a message in words."""
        if kind == "call":
            self._methods[number] = rest[0]
        path = self._methods.get(number, "?")
        where, method = f"{path.rpartition('/')[2]} {number}", _method(path)
        data = rest[-1] if rest and isinstance(rest[-1], bytes) else None
        if kind == "status":
            code, details = rest[0]
            return f"{where} ends: {code.name} {details}".rstrip()
        if data is None or method is None or (kind == "call" and not data):
            return f"{where} {kind}"
        message = GetMessageClass(method.input_type if to_server else method.output_type).FromString(data)
        return f"{where} {self._message(number, message)}".rstrip()

    def _message(self, number: int, message: Message) -> str:
        match message:
            case pb.SessionRequest() if message.WhichOneof("command") == "submit":
                return self._submit(number, message.submit)
            case pb.SessionRequest() if message.WhichOneof("command") == "batch":
                return "; ".join(self._message(number, each) for each in message.batch.commands)
            case pb.SessionRequest() if message.WhichOneof("command") == "abort":
                return "abort " + ", ".join(self._name(number, slot) for slot in message.abort.slots)
            case pb.SessionResponse() if message.WhichOneof("event") == "frame":
                return "frame " + "; ".join(self._frame(number, message.frame))
            case pb.SessionResponse() if message.WhichOneof("event") == "refusal":
                refused = ", ".join(self._name(number, slot) for slot in message.refusal.slots)
                return f"refusal {refused}: {message.refusal.message}"
        text = text_format.MessageToString(message, as_one_line=True)
        return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ... ({message.ByteSize()} bytes)"

    def _submit(self, number: int, submit: pb.Submit) -> str:
        prompt, several = len(prompt_ids(submit)), len(submit.slots) > 1
        for index, slot in enumerate(submit.slots):
            name = f"{submit.request_id}#{index}" if several else submit.request_id
            self._streams[number, slot] = _Stream(name, prompt)
        slots = " ".join(map(str, submit.slots))
        resumed = f", begun {submit.resumed_after_ms} ms ago" if submit.HasField("resumed_after_ms") else ""
        adapter = f", adapter {submit.lora.name}" if submit.lora.name else ""
        return f"submit {submit.request_id} in slot {slots}: {prompt} tokens{adapter}{resumed}"

    def _frame(self, number: int, frame: pb.StepFrame) -> list[str]:
        parts, start = [], 0
        ends = {finish.slot: finish for finish in frame.finishes}
        for slot, count in zip(frame.slots, frame.counts or [1] * len(frame.slots), strict=False):
            stream = self._streams.get((number, slot), _Stream(f"slot {slot}", 0))
            told = stream.tokens(list(frame.token_ids[start : start + count]))
            parts.append(told + self._end(ends.pop(slot, None)))
            start += count
        return parts + [self._name(number, slot) + self._end(finish) for slot, finish in ends.items()]

    def _end(self, finish: pb.Finish | None) -> str:
        if finish is None:
            return ""
        reason = pb.FinishReason.Name(finish.reason).removeprefix("FINISH_REASON_").lower()
        return f", ends: {reason}{', handed back' if finish.handed_back else ''}"

    def _name(self, number: int, slot: int) -> str:
        stream = self._streams.get((number, slot))
        return f"slot {slot}" if stream is None else stream.name
