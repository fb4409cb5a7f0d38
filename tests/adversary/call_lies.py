"""What a hostile worker answers to calls beside its session: what it makes of pictures, and the tokenizer it brings."""

import asyncio
import random
from collections.abc import Awaitable, Callable

from tokenwire.v1 import control_pb2
from tokenwire.v1 import inference_pb2 as pb

_LARGE_VOCABULARY = 2_000_000
_FLOODS = (10_000_000, 30_000_000)
"""Bytes of answers: below and beyond what a coordinator takes in one."""


def varint(number: int) -> bytes:
    """Return a number as protobuf writes it."""
    low, rest = number & 127, number >> 7
    return bytes([low | 128]) + varint(rest) if rest else bytes([low])


def large_tokenizer() -> control_pb2.GetTokenizerResponse:
    """Return a tokenizer of more than a coordinator takes, whose tokens are all different."""
    vocabulary = ",".join(f'"a token {number}":{number}' for number in range(_LARGE_VOCABULARY))
    model = f'{{"type":"WordLevel","vocab":{{{vocabulary}}},"unk_token":"a token 0"}}'
    return control_pb2.GetTokenizerResponse(files={"tokenizer.json": f'{{"model":{model}}}'.encode()})


async def _too_many_ids(rng: random.Random, request: pb.ExpandRequest) -> pb.ExpandResponse:
    count = rng.choice(_FLOODS)
    packed = b"\x0a" + varint(count) + b"\x41" * count
    return pb.ExpandResponse.FromString(packed + pb.ExpandResponse(spans=[pb.MediaSpan()]).SerializeToString())


async def _too_many_places(rng: random.Random, request: pb.ExpandRequest) -> pb.ExpandResponse:
    return pb.ExpandResponse.FromString(b"\x0a\x01\x41" + b"\x12\x00" * (rng.choice(_FLOODS) // 2))


async def _wrong_digests(rng: random.Random, request: pb.ExpandRequest) -> pb.ExpandResponse:
    return pb.ExpandResponse(missing=[rng.randbytes(32) for _ in range(rng.choice([1, 200_000]))])


async def _no_answer(rng: random.Random, request: pb.ExpandRequest) -> pb.ExpandResponse:
    await asyncio.Event().wait()
    return pb.ExpandResponse()


EXPANSIONS: dict[str, Callable[[random.Random, pb.ExpandRequest], Awaitable[pb.ExpandResponse]]] = {
    "too many ids for a picture": _too_many_ids,
    "too many places of a picture": _too_many_places,
    "wrong digests of pictures": _wrong_digests,
    "no answer for a picture": _no_answer,
}
