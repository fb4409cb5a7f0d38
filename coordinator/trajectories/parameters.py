"""Sampling parameters by their names, as they are stored with each turn."""

from collections.abc import Mapping
from typing import Any

from google.protobuf.json_format import MessageToDict

from tokenwire.v1 import inference_pb2 as pb

_MOST_BYTES = 64 * 1024
"""Of the parameters of all prompts of a request together, each of which is stored with them."""
_MOST_KNOWN = 64
_MOST_KNOWN_BYTES = 512


class NamedParameters:
    """Names parameters, and keeps those of recent requests: agents send the same ones with each turn."""

    def __init__(self) -> None:
        self._known: dict[bytes, Mapping[str, Any]] = {}

    def __len__(self) -> int:
        return len(self._known)

    def of(self, sampling: pb.SamplingParams, prompts: int) -> Mapping[str, Any]:
        """Return the parameters of each prompt of a request; of large ones only the numbers and switches."""
        packed = sampling.SerializeToString()
        if len(packed) * prompts > _MOST_BYTES:
            return _named(_numbers(sampling))
        if len(packed) > _MOST_KNOWN_BYTES:
            return _named(sampling)
        named = self._known.get(packed)
        if named is None:
            if len(self._known) == _MOST_KNOWN:
                del self._known[next(iter(self._known))]
            named = self._known[packed] = _named(sampling)
        return named


def _numbers(sampling: pb.SamplingParams) -> pb.SamplingParams:
    kept = pb.SamplingParams()
    for field, value in sampling.ListFields():
        if isinstance(value, int | float):
            setattr(kept, field.name, value)
    return kept


def _named(sampling: pb.SamplingParams) -> Mapping[str, Any]:
    named = MessageToDict(sampling, preserving_proto_field_name=True)
    # Protobuf's JSON has numbers of 64 bits as strings, and a client sent a seed as a number.
    numbers = [(field, value) for field, value in sampling.ListFields() if isinstance(value, int)]
    return named | {field.name: value for field, value in numbers if field.enum_type is None}
