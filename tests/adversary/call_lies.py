"""What a hostile worker answers to calls beside its session: what it makes of pictures, and the tokenizer it brings."""

import asyncio
import json
import random
from collections.abc import Awaitable, Callable, Sequence

from tokenwire.v1 import control_pb2
from tokenwire.v1 import inference_pb2 as pb

_LARGE_VOCABULARY = 2_000_000
_FLOODS = (10_000_000, 30_000_000)
"""Bytes of answers: below and beyond what a coordinator takes in one."""
_MOST = 2**32 - 1
_PLACES: Sequence[Sequence[tuple[int, int]]] = ([], [(0, 0)], [(_MOST, _MOST)], [(0, 5)] * 3)


def varint(number: int) -> bytes:
    """Return a number as protobuf writes it."""
    low, rest = number & 127, number >> 7
    return bytes([low | 128]) + varint(rest) if rest else bytes([low])


def large_tokenizer() -> control_pb2.GetTokenizerResponse:
    """Return a tokenizer of more than a coordinator takes, whose tokens are all different."""
    vocabulary = ",".join(f'"a token {number}":{number}' for number in range(_LARGE_VOCABULARY))
    model = f'{{"type":"WordLevel","vocab":{{{vocabulary}}},"unk_token":"a token 0"}}'
    return control_pb2.GetTokenizerResponse(files={"tokenizer.json": f'{{"model":{model}}}'.encode()})


def multiplying_tokenizer() -> control_pb2.GetTokenizerResponse:
    """Return a small tokenizer that makes a gigabyte of some words."""
    step = '{"type":"Replace","pattern":{"String":"e"},"content":"' + "e" * 16 + '"}'
    normalizer = f'{{"type":"Sequence","normalizers":[{",".join([step] * 7)}]}}'
    model = '{"type":"WordLevel","vocab":{"e":0},"unk_token":"e"}'
    tokenizer = f'{{"model":{model},"normalizer":{normalizer}}}'
    return control_pb2.GetTokenizerResponse(files={"tokenizer.json": tokenizer.encode()})


def tokenizer_with_large_template() -> control_pb2.GetTokenizerResponse:
    """Return a tokenizer whose chat template takes long to compile, and a gigabyte."""
    model = '{"type":"WordLevel","vocab":{"e":0},"unk_token":"e"}'
    template = b"{{[" + b"a," * 120_000 + b"]}}"
    files = {"tokenizer.json": f'{{"model":{model}}}'.encode(), "chat_template.jinja": template}
    return control_pb2.GetTokenizerResponse(files=files)


def tokenizer_with_slow_expression() -> control_pb2.GetTokenizerResponse:
    """Return a tokenizer that takes a minute for a thousand letters, and for its one token that has these."""
    token = "z" * 1000 + " Q"
    step = {"type": "Replace", "pattern": {"Regex": "z*z*z*[QX]"}, "content": "x"}
    parts = {
        "model": {"type": "WordLevel", "vocab": {token: 0}, "unk_token": token},
        "pre_tokenizer": {"type": "Split", "pattern": step["pattern"], "behavior": "Isolated", "invert": False},
        "decoder": step,
    }
    return control_pb2.GetTokenizerResponse(files={"tokenizer.json": json.dumps(parts).encode()})


async def _too_many_ids(rng: random.Random, request: pb.ExpandRequest) -> pb.ExpandResponse:
    count = rng.choice(_FLOODS)
    packed = b"\x0a" + varint(count) + b"\x41" * count
    return pb.ExpandResponse.FromString(packed + pb.ExpandResponse(spans=[pb.MediaSpan()]).SerializeToString())


async def _too_many_places(rng: random.Random, request: pb.ExpandRequest) -> pb.ExpandResponse:
    return pb.ExpandResponse.FromString(b"\x0a\x01\x41" + b"\x12\x00" * (rng.choice(_FLOODS) // 2))


async def _wrong_digests(rng: random.Random, request: pb.ExpandRequest) -> pb.ExpandResponse:
    return pb.ExpandResponse(missing=[rng.randbytes(32) for _ in range(rng.choice([1, 200_000]))])


async def _impossible_places(rng: random.Random, request: pb.ExpandRequest) -> pb.ExpandResponse:
    spans = [pb.MediaSpan(offset=offset, length=length) for offset, length in rng.choice(_PLACES)]
    return pb.ExpandResponse(token_ids=[65] * rng.choice([0, 1, 9]), spans=spans)


async def _beyond_the_context(rng: random.Random, request: pb.ExpandRequest) -> pb.ExpandResponse:
    return _expanded([65] * 100_000)


async def _ids_out_of_range(rng: random.Random, request: pb.ExpandRequest) -> pb.ExpandResponse:
    return _expanded([_MOST, rng.getrandbits(32)])


async def _features_unasked(rng: random.Random, request: pb.ExpandRequest) -> pb.ExpandResponse:
    return _expanded([65, 66], b"}{")


def _expanded(token_ids: Sequence[int], features: bytes = b"") -> pb.ExpandResponse:
    return pb.ExpandResponse(token_ids=token_ids, spans=[pb.MediaSpan(offset=0, length=1)], features_json=features)


async def _no_answer(rng: random.Random, request: pb.ExpandRequest) -> pb.ExpandResponse:
    await asyncio.Event().wait()
    return pb.ExpandResponse()


EXPANSIONS: dict[str, Callable[[random.Random, pb.ExpandRequest], Awaitable[pb.ExpandResponse]]] = {
    "too many ids for a picture": _too_many_ids,
    "too many places of a picture": _too_many_places,
    "wrong digests of pictures": _wrong_digests,
    "a picture in impossible places": _impossible_places,
    "ids of a picture beyond the context": _beyond_the_context,
    "ids of a picture out of range": _ids_out_of_range,
    "features of a picture that nobody asked for": _features_unasked,
    "no answer for a picture": _no_answer,
}
