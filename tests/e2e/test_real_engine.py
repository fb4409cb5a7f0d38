"""tokenwire against real vLLM: the same model and requests, the same answers, and real engines that die or drain."""

import json
import os
import re
import signal
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.e2e.real_engine import (
    CHAT,
    ENGINE_ARGUMENTS,
    MAX_TOKENS,
    START_TIMEOUT_S,
    TEXT,
    Case,
    Recording,
    VllmServer,
    chat,
    child,
    environment,
    record,
    serving,
    text,
)
from tests.processes import Service, coordinator, running

pytestmark = [pytest.mark.engine, pytest.mark.timeout(400)]

SUM = "What is 2+2?"
COLORS = "Name three colors."  # 1. Red\n2. Blue\n3. Green
STORY = "Tell me a story."
PARTY = "Write an emoji party: 🎉🎊🥳 only emojis"  # 🎉🎊🥳🎉🎊 and so on, two or more tokens each
FRANCE = "The capital of France is"  # Paris.\n\nThe answer is: 2018-…
FACES = "😀 😃 😄 😁 😆 😀 😃 😄 😁 😆 😀 😃"
TURNS = [
    {"role": "system", "content": "You are terse."},
    {"role": "user", "content": "Hello, who are you?"},
    {"role": "assistant", "content": "A model."},
    {"role": "user", "content": "Which one?"},
]
SCRAPS = [181, 249, 121, 222, 228, 235, 100, 101, 133, 187, 188, 10813, 232]
"""Tokens that are parts of characters: whatever is sampled from them, most of it is broken text."""
EOS = ("stop", None)

CASES: dict[str, Case] = {
    # How replies end.
    "ends by itself, no max_tokens": chat(SUM, EOS, max_tokens=None),
    "ends by itself, the whole context allowed": chat(SUM, EOS, max_tokens=2048),
    "max_tokens": chat(STORY),
    "max_completion_tokens": chat(STORY, max_tokens=None, max_completion_tokens=9),
    "one token": chat(STORY, max_tokens=1),
    "one token, which ends it": chat(SUM, EOS, max_tokens=1, allowed_token_ids=[2]),
    "ignore_eos": chat(SUM, ignore_eos=True),
    "min_tokens": chat(SUM, min_tokens=14),
    "stop token id": chat(COLORS, ("stop", 10062), stop_token_ids=[10062]),
    "stop token id, included": chat(
        COLORS, ("stop", 10062), stop_token_ids=[10062, 4910], include_stop_str_in_output=True
    ),
    "stop token id that is the end": chat(SUM, EOS, stop_token_ids=[2]),
    # Sampling.
    "defaults of the model": chat(STORY, temperature=None, seed=11),
    "seeded": chat(STORY, temperature=0.8, seed=1),
    "seeded, large seed": chat(STORY, temperature=1.0, seed=2**40),
    "top_p": chat(STORY, temperature=1.0, seed=2, top_p=0.7),
    "top_k": chat(STORY, temperature=1.0, seed=3, top_k=5),
    "min_p": chat(STORY, temperature=1.0, seed=4, min_p=0.1),
    "OpenAI's penalties": chat(STORY, temperature=0.8, seed=5, presence_penalty=1.2, frequency_penalty=0.9),
    "repetition penalty": chat(PARTY, repetition_penalty=1.4),
    "two choices": chat(STORY, temperature=0.8, seed=6, n=2),
    "three choices, stopped apart": chat(
        COLORS, ("stop", "rainbow"), temperature=1.0, seed=7, n=3, stop=["rainbow", "religious"]
    ),
    "logit_bias": chat(SUM, EOS, logit_bias={"504": -100, "33": 3.5}),
    "allowed ids": chat(SUM, allowed_token_ids=[33, 34, 35, 216]),
    "bad words": chat(COLORS, bad_words=["Red", "Blue"]),
    # Stop strings.
    "stop": chat(COLORS, ("stop", "Blue"), stop=["Blue"]),
    "stop as a string": chat(COLORS, ("stop", "Green"), stop="Green"),
    "stop, several": chat(COLORS, ("stop", "2."), stop=["Green", "Blue", "2.", "3."]),
    "stop that spans tokens": chat(COLORS, ("stop", "ed\n2. B"), stop=["ed\n2. B"]),
    "stop inside a token": chat(COLORS, ("stop", "lu"), stop=["lu"]),
    "stop, two in one token": chat(COLORS, ("stop", "lue"), stop=["lue", "Blue"]),
    "stop that never matches": chat(COLORS, EOS, stop=["zebra"]),
    "stop that nearly matches at the end": chat(COLORS, EOS, stop=["Green!", "2. Black"]),
    "stop, included": chat(COLORS, ("stop", "Blu"), stop=["Blu"], include_stop_str_in_output=True),
    "stop, included, across tokens": chat(COLORS, ("stop", "Red\n2"), stop=["Red\n2"], include_stop_str_in_output=True),
    "stop after min_tokens": chat(COLORS, ("stop", "Blue"), stop=["Red", "Blue"], min_tokens=5),
    "stop begun before min_tokens": chat(COLORS, ("stop", "Red\n2"), stop=["Red\n2"], min_tokens=4),
    "stop in the first token": chat(COLORS, ("stop", "1"), stop=["1"]),
    "stop in the last token allowed": chat(COLORS, ("stop", "Red"), stop=["Red"], max_tokens=3),
    "stop and stop id": chat(COLORS, ("stop", 10062), stop=["Green"], stop_token_ids=[10062]),
    # Characters of several tokens.
    "emoji": chat(PARTY),
    "emoji, cut inside one": chat(PARTY, max_tokens=8),
    "emoji as stop": chat(PARTY, ("stop", "🥳"), stop=["🥳"]),
    "emoji as stop, included": chat(PARTY, ("stop", "🎊🥳"), stop=["🎊🥳"], include_stop_str_in_output=True),
    "scraps of characters": text("a", temperature=2.0, seed=8, allowed_token_ids=SCRAPS, max_tokens=40),
    "prompt that ends inside a character": text([10813], temperature=0, allowed_token_ids=[232, 227], max_tokens=6),
    "Chinese": text("你好，世界。你好，世界。你好，", max_tokens=16),
    "faces": text(FACES),
    # Special tokens in the text.
    "special tokens shown": text(
        "<|im_start|>user\nHi<|im_end|>\n",
        skip_special_tokens=False,
        temperature=1.0,
        seed=9,
        allowed_token_ids=[0, 1, 504],
    ),
    "special tokens shown, unspaced": text(
        "<|im_start|>",
        skip_special_tokens=False,
        spaces_between_special_tokens=False,
        temperature=1.0,
        seed=10,
        allowed_token_ids=[0, 1, 504, 3950],
    ),
    "special tokens hidden": text("x", temperature=1.0, seed=9, allowed_token_ids=[0, 1, 504]),
    "end shown": chat(SUM, EOS, skip_special_tokens=False, include_stop_str_in_output=True),
    "end not shown": chat(SUM, EOS, skip_special_tokens=False),
    # Forms of prompts.
    "turns": chat(TURNS, EOS),
    "content parts": chat(
        [{"role": "user", "content": [{"type": "text", "text": "Name"}, {"type": "text", "text": "a"}]}]
    ),
    "continued message": chat(
        [{"role": "user", "content": SUM}, {"role": "assistant", "content": "Well, the answer"}],
        EOS,
        add_generation_prompt=False,
        continue_final_message=True,
    ),
    "no generation prompt": chat(SUM, add_generation_prompt=False, max_tokens=5),
    "text": text(FRANCE),
    "text, default length": text(FRANCE, max_tokens=None),
    "text, seeded, two choices": text(FRANCE, temperature=0.8, seed=12, n=2),
    "texts": text([FRANCE, "One two three", "def main():"], max_tokens=9),
    "texts, two choices each": text([FRANCE, "One two"], temperature=0.9, seed=13, n=2, max_tokens=9),
    "ids": text([504, 3575, 282, 4649, 314]),
    "lists of ids": text([[504, 3575], [282, 4649, 314]], max_tokens=9),
    "text without special tokens": text(FRANCE, add_special_tokens=False, max_tokens=5),
    "text with a stop": text(FRANCE, ("stop", ".\n\nThe"), stop=[".\n\nThe", "zzz"]),
}

HEAVY = re.compile(r"torch|vllm|transformers")
OTHER_PARAM = {
    # vLLM looks at what is left of the context for output, which is nothing; we name what used it up.
    "prompt of the whole context",
    # vLLM gives the position as if it were a field.
    "malformed",
}

MESSAGES = [{"role": "user", "content": SUM}]
INVALID: dict[str, tuple[str, Any]] = {
    "other model": (CHAT, {"model": "other", "messages": MESSAGES}),
    "other model, text": (TEXT, {"model": "other", "prompt": "x"}),
    "prompt too long": (CHAT, {"messages": [{"role": "user", "content": "x " * 3000}]}),
    "prompt of the whole context": (TEXT, {"prompt": [504] * 2048}),
    "prompt id too large": (TEXT, {"prompt": [49152]}),
    "prompt id negative": (TEXT, {"prompt": [-1]}),
    "prompt empty": (TEXT, {"prompt": []}),
    "prompt missing": (TEXT, {}),
    "messages empty": (CHAT, {"messages": []}),
    "messages missing": (CHAT, {}),
    "messages of a wrong type": (CHAT, {"messages": "hello"}),
    "n with greedy": (CHAT, {"messages": MESSAGES, "n": 2, "temperature": 0}),
    "n zero": (CHAT, {"messages": MESSAGES, "n": 0}),
    "too many stops": (CHAT, {"messages": MESSAGES, "stop": ["a"] * 5}),
    "empty stop": (CHAT, {"messages": MESSAGES, "stop": [""]}),
    "temperature too high": (CHAT, {"messages": MESSAGES, "temperature": 2.5}),
    "temperature negative": (CHAT, {"messages": MESSAGES, "temperature": -1}),
    "temperature of a wrong type": (CHAT, {"messages": MESSAGES, "temperature": "hot"}),
    "top_p zero": (CHAT, {"messages": MESSAGES, "top_p": 0}),
    "top_k": (CHAT, {"messages": MESSAGES, "top_k": -5}),
    "min_p": (CHAT, {"messages": MESSAGES, "min_p": 1.5}),
    "penalty": (CHAT, {"messages": MESSAGES, "presence_penalty": 3}),
    "repetition penalty": (CHAT, {"messages": MESSAGES, "repetition_penalty": 0}),
    "max_tokens zero": (CHAT, {"messages": MESSAGES, "max_tokens": 0}),
    "max_tokens over the context": (CHAT, {"messages": MESSAGES, "max_tokens": 4096}),
    "min_tokens over max_tokens": (CHAT, {"messages": MESSAGES, "min_tokens": 9, "max_tokens": 5}),
    "min_tokens negative": (CHAT, {"messages": MESSAGES, "min_tokens": -1}),
    "seed too large": (CHAT, {"messages": MESSAGES, "seed": 2**70}),
    "bias of no token": (CHAT, {"messages": MESSAGES, "logit_bias": {"x": 1}}),
    "bias of an unknown token": (CHAT, {"messages": MESSAGES, "logit_bias": {"99999": 1}}),
    "allowed id unknown": (CHAT, {"messages": MESSAGES, "allowed_token_ids": [99999]}),
    "stream options without a stream": (CHAT, {"messages": MESSAGES, "stream_options": {"include_usage": True}}),
    "continued and generated": (CHAT, {"messages": MESSAGES, "continue_final_message": True}),
    "an image": (CHAT, {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}),
    "malformed": (CHAT, b'{"messages": ['),
}


@dataclass(frozen=True)
class Compared:
    """What both servers answered to the same requests."""

    vllm: Recording
    ours: Recording


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for logs."""
    return tmp_path_factory.mktemp("real")


@pytest.fixture(scope="module")
def vllm(place: Path) -> Iterator[VllmServer]:
    """vLLM's own server, not waited for: it starts while tokenwire does."""
    server = VllmServer(place)
    yield server
    server.stop()


@pytest.fixture(scope="module")
def service(place: Path) -> Iterator[Service]:
    """Plain `tokenwire serve`. The last test of this file takes its engine away."""
    with serving(place) as started:
        yield started


@pytest.fixture(scope="module")
def compared(vllm: VllmServer, service: Service) -> Compared:
    """Both servers' answers; vLLM is stopped afterwards, so that the other tests have the machine."""
    vllm.wait_ready()
    with ThreadPoolExecutor(2) as threads:
        expected, ours = threads.map(lambda url: record(url, CASES, INVALID), [vllm.url, service.url])
    vllm.stop()
    return Compared(expected, ours)


@pytest.mark.parametrize("name", CASES)
def test_whole_answers_equal_vllms(compared: Compared, name: str) -> None:
    """Ids, text, finish and stop reason, usage, order of choices, role, model and object are vLLM's."""
    expected = compared.vllm.whole[name]

    assert compared.ours.whole[name] == expected
    assert list(compared.ours.whole[name].choices) == list(expected.choices)
    assert (expected.choices[0].finish_reason, expected.choices[0].stop_reason) == CASES[name].ends


@pytest.mark.parametrize("name", CASES)
def test_streams_equal_vllms(compared: Compared, name: str) -> None:
    """What a stream adds up to, what opens it and what ends it are vLLM's, and the whole answer's."""
    streamed = compared.ours.streamed[name]

    assert streamed == compared.vllm.streamed[name]
    assert streamed.finish_is_last
    assert streamed.usage_is_last
    texts = {index: choice.text for index, choice in streamed.choices.items()}
    assert texts == {index: choice.text for index, choice in compared.ours.whole[name].choices.items()}


@pytest.mark.parametrize("name", CASES)
def test_streams_with_ids_equal_vllms(compared: Compared, name: str) -> None:
    """With return_token_ids a stream carries the prompt's and the reply's ids, each once."""
    streamed = compared.ours.streamed_with_ids[name]

    assert streamed == compared.vllm.streamed_with_ids[name]
    ids = {index: choice.token_ids for index, choice in streamed.choices.items()}
    assert ids == {index: choice.token_ids for index, choice in compared.ours.whole[name].choices.items()}


@pytest.mark.parametrize("name", INVALID)
def test_errors_equal_vllms(compared: Compared, name: str) -> None:
    """A wrong request gets vLLM's status, and the same field where vLLM names one by its own name."""
    ours, expected = compared.ours.refused[name], compared.vllm.refused[name]

    assert ours.status == expected.status >= 400
    if expected.param and name not in OTHER_PARAM:
        assert ours.param is not None
        assert expected.param.removeprefix("body.").split(".")[0] == ours.param.split(".")[0]


@pytest.mark.parametrize("case", [chat(STORY), text(FRANCE)], ids=["chat", "text"])
def test_events_end_with_done(service: Service, case: Case) -> None:
    """On the wire a stream is server-sent events, counts usage up where asked, and ends with [DONE]."""
    options = {"stream": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True}}
    response = httpx.post(service.url + case.path, json={**case.body, **options}, timeout=60)

    events = [line.removeprefix("data: ") for line in response.text.split("\n\n") if line]
    counts = [json.loads(event)["usage"]["completion_tokens"] for event in events[:-1]]
    assert response.headers["content-type"].startswith("text/event-stream")
    assert events[-1] == "[DONE]"
    assert counts == sorted(counts)
    assert counts[-1] == MAX_TOKENS


def test_no_slot_stays_open(compared: Compared, service: Service) -> None:
    """After all of these requests the worker has nothing left to do, and nothing went wrong in the logs."""
    service.wait_slots(0)

    assert "Traceback" not in service.coordinator.log


def test_a_stop_string_ends_the_engine(service: Service) -> None:
    """When a stop string matches, the engine makes at most two more tokens."""
    before = service.server_info().generated_tokens
    case = chat(STORY, stop=[","], max_tokens=1000)

    answer = httpx.post(service.url + case.path, json=case.body, timeout=60).json()

    service.wait_slots(0)
    assert answer["choices"][0]["stop_reason"] == ","
    assert service.server_info().generated_tokens - before <= answer["usage"]["completion_tokens"] + 2


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_frees_the_engine(service: Service, stream: bool) -> None:
    """A client that hangs up in mid-reply ends its sequences in the engine at once; the next one is served."""
    before = service.server_info().generated_tokens
    case = chat(STORY, ignore_eos=True, max_tokens=1500, n=2, temperature=1.0, stream=stream)

    with _send(service.url, case) as _:
        service.wait_slots(2)
        _wait_tokens(service, before + 4)

    assert service.wait_slots(0) < 1.0
    left = service.server_info().generated_tokens
    assert left - before < 200
    one = chat(SUM, max_tokens=3)
    assert httpx.post(service.url + one.path, json=one.body, timeout=60).json()["usage"]["completion_tokens"] == 3
    info = service.server_info()
    assert info.generated_tokens == left + 3
    assert info.welcome.load.running <= 1


def test_the_coordinator_is_slim(service: Service, place: Path) -> None:
    """No coordinator has torch, vLLM or transformers in it, not even after a request."""
    maps = {part.path for part in child(service.coordinator, "coordinator").memory_maps()}
    assert not [path for path in maps if HEAVY.search(path)]
    assert [
        path for path in {part.path for part in child(service.coordinator, "worker").memory_maps()} if "torch" in path
    ]

    arguments = ["coordinator", "--port", "0", "--worker", service.addresses[0]]
    with running(arguments, place, "imports", {"PYTHONPROFILEIMPORTTIME": "1"}) as process:
        url = process.wait_for(r"is ready: (http://\S+)")[1]
        case = chat(SUM, max_tokens=2)
        assert httpx.post(url + case.path, json=case.body, timeout=60).status_code == 200
        process.stop()
        imported = set(re.findall(r"^import time:.*\| +(\w+)", process.log, re.MULTILINE))

    assert "tokenizers" in imported
    assert not [name for name in imported if HEAVY.search(name)]


def test_sigterm_lets_a_real_engine_finish(place: Path) -> None:
    """A worker that is told to stop finishes its streams, exits 0 and leaves no process behind."""
    address = f"unix:{place}/worker.sock"
    arguments = ["worker", "--listen", address, "--", *ENGINE_ARGUMENTS]
    with running(arguments, place, "worker", environment()) as worker:
        worker.wait_for(r"ready: .* on (\S+)", START_TIMEOUT_S)
        family = psutil.Process(worker.popen.pid).children(recursive=True)
        with coordinator(place, [address]) as (_, url):
            service = Service(worker, url, [worker], [address])
            with _Reader(url, chat(STORY, ignore_eos=True, max_tokens=60, stream=True)) as reader:
                service.wait_slots(1)

                worker.signal(signal.SIGTERM)

            assert worker.wait_exit(60) == 0
            assert "draining: 1 slots" in worker.log
            assert '"finish_reason":"length"' in reader.text
            assert reader.text.endswith("data: [DONE]\n\n")
    _, alive = psutil.wait_procs(family, timeout=15)
    assert not alive


def test_a_killed_engine_ends_streams_and_service(service: Service) -> None:
    """kill -9 of vLLM's engine core: streams end with an error event, the worker exits with 1, and serve with it."""
    family = psutil.Process(service.coordinator.popen.pid).children(recursive=True)
    (core,) = [each for each in family if "EngineCore" in " ".join(each.cmdline())]
    case = chat(STORY, ignore_eos=True, max_tokens=1500, stream=True)
    before = service.server_info().generated_tokens
    with _Reader(service.url, case) as one, _Reader(service.url, case) as other:
        service.wait_slots(2)
        _wait_tokens(service, before + 6)

        os.kill(core.pid, signal.SIGKILL)

    for text_seen in (one.text, other.text):
        *_, error, done, end = text_seen.split("\n\n")
        assert json.loads(error.removeprefix("data: "))["error"]["code"] in (500, 503)
        assert (done, end) == ("data: [DONE]", "")
    assert service.coordinator.wait_exit(60) == 1
    assert "worker ended with code 1" in service.coordinator.log
    _, alive = psutil.wait_procs(family, timeout=15)
    assert not alive


class _Reader(threading.Thread):
    """Reads a stream in the background; the with block ends when the stream has."""

    def __init__(self, url: str, case: Case) -> None:
        super().__init__()
        self._request = (url + case.path, case.body)
        self.text = ""

    def __enter__(self) -> "_Reader":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.join()

    def run(self) -> None:
        url, body = self._request
        self.text = httpx.post(url, json=body, timeout=120).text


def _send(url: str, case: Case) -> socket.socket:
    """Send a request on a bare socket and leave the answer unread."""
    host, port = url.removeprefix("http://").split(":")
    connection = socket.create_connection((host, int(port)))
    payload = json.dumps(case.body).encode()
    head = f"POST {case.path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    connection.sendall(f"{head}Content-Length: {len(payload)}\r\n\r\n".encode() + payload)
    return connection


def _wait_tokens(service: Service, count: int) -> None:
    """Wait until the engine has made so many tokens since its start."""
    deadline = time.monotonic() + 30
    while service.server_info().generated_tokens < count:
        assert time.monotonic() < deadline, service.coordinator.log
