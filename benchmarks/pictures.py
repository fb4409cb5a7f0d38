"""The effect of new pictures on running streams: gaps between tokens and delays of aborts, with and without them."""

import asyncio
import base64
import hashlib
import io
import os
import socket
import statistics
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import urlsplit

import grpc

from benchmarks.load import StreamResult, http_request, percentile, stream
from benchmarks.long_prompts import gaps_within
from benchmarks.processes import measured
from tests.lazily import Lazily
from tests.vision_model.model import vision_model
from tokenwire.v1 import control_pb2, control_pb2_grpc, inference_pb2_grpc
from tokenwire.v1 import inference_pb2 as pb

images = Lazily("PIL.Image")

_STREAMS = 64
_STEP_MS = 20.0
_PER_S = 8
_SIZE = (1632, 1224)
"""Two megapixels."""
_WINDOW_S = 6.0
_PAUSE_S = 1.0
_ROUNDS = 6
"""Windows of each kind, in turns, so that what else the machine does meets both."""
_WARM_UP_S = 3.0
_LARGE_BYTES = 20 * 2**20
_CHUNK_BYTES = 256 * 1024
_BYTES_PER_S = 20 * 2**20
_ABORTS = 20


@dataclass(frozen=True, slots=True)
class PictureRow:
    """All windows of one kind; percentiles are medians of the windows'."""

    case: str
    pictures: int
    picture_kb: int
    itl_p50_ms: float
    itl_p99_ms: float
    itl_max_ms: float
    picture_p50_ms: float
    """From the first byte of a request with a picture to the first byte of its reply."""


@dataclass(frozen=True, slots=True)
class _Window:
    gaps: Sequence[float]
    replies: Sequence[StreamResult]


def run() -> dict[str, Any]:
    """Measure streams beside pictures, and aborts beside the transfer of a large one."""
    load = os.getloadavg()[0]
    picture = _picture()
    arguments = [str(_STEP_MS), str(_STREAMS + 16), str(vision_model())]
    with measured(arguments, module="benchmarks.picture_worker") as worker:
        address = worker.wait_for(r"ready: (\S+)")[1]
        with measured(["coordinator", "--port", "0", "--worker", address]) as coordinator:
            url = coordinator.wait_for(r"is ready: (http://\S+)")[1]
            without, beside = asyncio.run(_measure(url, picture))
            aborts = _aborts(url, address)
    quotients = [
        percentile(late.gaps, 99) / percentile(early.gaps, 99) for early, late in zip(without, beside, strict=True)
    ]
    return {
        "pictures": [_row("alone", without, picture), _row(f"{_PER_S} new pictures a second", beside, picture)],
        "pictures_effect": {"p99_quotient_median": statistics.median(quotients), "load_before": load},
        "pictures_aborts": aborts,
    }


async def _measure(url: str, picture: bytes) -> tuple[list[_Window], list[_Window]]:
    window_s = _WINDOW_S + _PAUSE_S + 2.0  # in which its requests are made
    tokens = int((_WARM_UP_S + 2 * _ROUNDS * window_s) * 1000 / _STEP_MS)
    messages = [{"role": "user", "content": "Tell me a story."}]
    request = http_request(url, "/v1/chat/completions", {"messages": messages, "max_tokens": tokens, "stream": True})
    running = [asyncio.create_task(stream(url, request)) for _ in range(_STREAMS)]
    await asyncio.sleep(_WARM_UP_S)
    for _ in range(2):  # the first picture waits for the processes
        await stream(url, _asked(url, picture))
    windows = []
    for number in range(2 * _ROUNDS):
        count = int(_PER_S * _WINDOW_S) if number % 2 else 0
        requests = [_asked(url, picture) for _ in range(count)]
        await asyncio.sleep(_PAUSE_S)
        started = time.monotonic()
        replies = [asyncio.create_task(_at(started + i / _PER_S, url, each)) for i, each in enumerate(requests)]
        await asyncio.sleep(_WINDOW_S)
        windows.append((started, time.monotonic(), await asyncio.gather(*replies)))
    results = await asyncio.gather(*running)
    if any(not each.complete for each in (*results, *(reply for *_, replies in windows for reply in replies))):
        raise RuntimeError("not all replies are complete")
    made = [_Window(gaps_within(results, started, ended), replies) for started, ended, replies in windows]
    if not all(window.gaps for window in made):
        raise RuntimeError(f"{_PER_S} pictures a second are more than this machine processes now")
    return made[0::2], made[1::2]


async def _at(due: float, url: str, request: bytes) -> StreamResult:
    await asyncio.sleep(max(0.0, due - time.monotonic()))
    return await stream(url, request)


def _row(case: str, windows: Sequence[_Window], picture: bytes) -> dict[str, Any]:
    first = [1000 * (reply.time_to_first_token or 0.0) for window in windows for reply in window.replies]
    p50, p99 = (statistics.median(percentile(window.gaps, percent) for window in windows) for percent in (50, 99))
    longest = max(max(window.gaps) for window in windows)
    return asdict(PictureRow(case, len(first), len(picture) // 1000, p50, p99, longest, percentile(first, 50)))


def _picture() -> bytes:
    """Return a photograph's worth of bytes."""
    noise = [images.effect_noise(_SIZE, spread) for spread in (18, 22, 26)]
    target = io.BytesIO()
    images.merge("RGB", noise).save(target, "JPEG", quality=62)
    return target.getvalue()


def _asked(url: str, picture: bytes) -> bytes:
    """Return a request with the picture as one that nobody has seen: decoders ignore what follows its end."""
    encoded = base64.b64encode(picture + os.urandom(8)).decode()
    part = {"type": "image_url", "image_url": {"url": f"data:image/jpeg;base64,{encoded}"}}
    content = [part, {"type": "text", "text": "What is this?"}]
    body = {"messages": [{"role": "user", "content": content}], "max_tokens": 1, "stream": True}
    return http_request(url, "/v1/chat/completions", body)


def _aborts(url: str, address: str) -> dict[str, Any]:
    """Return the steps from a client's disconnect to the end of its sequence while a large picture is sent."""
    steps = []
    with grpc.insecure_channel(address) as channel:
        info, media = control_pb2_grpc.ControlStub(channel), inference_pb2_grpc.MediaStub(channel)
        for _ in range(_ABORTS):
            data, begun = os.urandom(_LARGE_BYTES), threading.Event()
            connection = _started(url)
            put = media.Put.future(_slowly(data, begun))
            begun.wait()
            connection.close()
            left = time.monotonic()
            while info.GetServerInfo(control_pb2.GetServerInfoRequest()).open_slots:
                pass
            steps.append(1000 * (time.monotonic() - left) / _STEP_MS)
            if put.done():
                raise RuntimeError("the picture was there before the abort")
            put.result()
    steps.sort()
    return {"aborts": len(steps), "steps_p50": steps[len(steps) // 2], "steps_max": steps[-1]}


def _slowly(data: bytes, begun: threading.Event) -> Iterator[pb.PutRequest]:
    """Yield the chunks of a picture over a second or so, as a network of 20 MB a second would bring them."""
    digest = hashlib.sha256(data).digest()
    for start in range(0, len(data), _CHUNK_BYTES):
        chunk = data[start : start + _CHUNK_BYTES]
        yield pb.PutRequest(digest=digest, size=len(data), data=chunk) if not start else pb.PutRequest(data=chunk)
        if start:
            begun.set()
        time.sleep(_CHUNK_BYTES / _BYTES_PER_S)


def _started(url: str) -> socket.socket:
    """Return the connection of a stream whose first token has come."""
    parts = urlsplit(url)
    connection = socket.create_connection((parts.hostname or "", parts.port or 80))
    messages = [{"role": "user", "content": "Tell me a story."}]
    body = {"messages": messages, "max_tokens": 20_000, "stream": True}
    connection.sendall(http_request(url, "/v1/chat/completions", body))
    connection.recv(65536)
    return connection
