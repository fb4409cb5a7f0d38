"""tokenwire against real vLLM: the same model and requests, the same answers, and real engines that drain."""

import asyncio
import os
import re
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil
import pytest

from tests.conformance.parity.corpus import corpus
from tests.conformance.parity.corpus.prompts_used import STORY, SUM
from tests.conformance.parity.generator import generate_request
from tests.conformance.parity.premises import wrong_premise
from tests.conformance.parity.report import describe
from tests.conformance.parity.request import chat
from tests.conformance.parity.run import ParityOutcome, judge_all
from tests.conformance.servers import ENGINE_ARGUMENTS, START_TIMEOUT_S, VllmServer, child, environment
from tests.e2e.bare_streams import send_unread
from tests.e2e.reader import Reader
from tests.processes import Service, coordinator, running
from tests.tiny_model import tiny_model

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]

HEAVY = re.compile(r"torch|vllm|transformers")
WRITTEN = corpus(brief=True)
DRAWN = [generate_request(seed=20, number=number) for number in range(60)]
_AT_A_TIME = 32


@dataclass(frozen=True)
class Compared:
    """What both servers answered to the same requests, and what of their prompts they found in their caches."""

    outcomes: dict[str, ParityOutcome]
    cached: list[list[int]]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for logs."""
    return tmp_path_factory.mktemp("real")


@pytest.fixture(scope="module")
def vllm(place: Path) -> Iterator[VllmServer]:
    """vLLM's own server, not waited for: it starts while tokenwire does."""
    server = VllmServer(place, model=tiny_model())
    yield server
    server.stop()


@pytest.fixture(scope="module")
def compared(vllm: VllmServer, real: Service) -> Compared:
    """Both servers' answers; vLLM is stopped afterwards, so that the other tests have the machine."""
    vllm.wait_ready()
    urls = (real.url, vllm.url)
    outcomes = asyncio.run(judge_all(urls, WRITTEN, False, _AT_A_TIME, lambda _: None))
    outcomes += asyncio.run(judge_all(urls, DRAWN, True, _AT_A_TIME, lambda _: None))
    cached = [_cached_tokens(url) for url in urls]
    vllm.stop()
    return Compared({outcome.request.name: outcome for outcome in outcomes}, cached)


def _cached_tokens(url: str) -> list[int]:
    """Send the same long prompt twice."""
    case = chat("word " * 300, max_tokens=1, cache_salt="asked twice")
    answers = [httpx.post(url + case.path, json=case.body, timeout=60).json() for _ in range(2)]
    return [answer["usage"]["prompt_tokens_details"]["cached_tokens"] for answer in answers]


@pytest.mark.parametrize("name", [request.name for request in WRITTEN])
def test_written_requests_are_answered_as_vllm_does(compared: Compared, name: str) -> None:
    """Every field of the answer, what a stream adds up to, and every part of an error are vLLM's, or explained."""
    outcome = compared.outcomes[name]

    assert wrong_premise(outcome.request, outcome.theirs) is None
    assert not outcome.differences, describe(outcome, 50)


@pytest.mark.parametrize("name", [request.name for request in DRAWN])
def test_drawn_requests_are_answered_as_vllm_does(compared: Compared, name: str) -> None:
    """So is what a random request gets, streamed or not; and vLLM's response is the same twice."""
    outcome = compared.outcomes[name]

    assert outcome.stable
    assert not outcome.differences, describe(outcome, 50)


def test_usage_reports_cached_tokens(compared: Compared) -> None:
    """A prompt that was seen before is reported as cached, as far as vLLM reports it."""
    ours, theirs = compared.cached

    assert ours == theirs
    assert 0 == ours[0] < ours[1]


def test_no_slot_stays_open(compared: Compared, real: Service) -> None:
    """After all of these requests the worker has nothing left to do, and nothing went wrong in the logs."""
    real.wait_slots(0)

    assert "Traceback" not in real.coordinator.log


def test_a_start_shows_its_own_progress_alone(real: Service) -> None:
    """No library that an engine loads prints anything, in any language and process, unless it is requested."""
    shown = real.coordinator.log.partition("is ready")[0].splitlines()

    assert shown[0] == "tokenwire: starting"
    assert [line for line in shown if line and not line.startswith("tokenwire")] == []


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_frees_the_engine(real: Service, stream: bool) -> None:
    """A client that hangs up in mid-reply ends its sequences in the engine at once; the next one is served."""
    before = real.server_info().generated_tokens
    case = chat(STORY, ignore_eos=True, max_tokens=1500, n=2, temperature=1.0, stream=stream)

    with send_unread(real.url, case.body, case.path) as _:
        real.wait_slots(2)
        _wait_tokens(real, before + 4)

    assert real.wait_slots(0) < 1.0
    left = real.server_info().generated_tokens
    assert left - before < 1000  # of 3000
    one = chat(SUM, max_tokens=3)
    assert httpx.post(real.url + one.path, json=one.body, timeout=60).json()["usage"]["completion_tokens"] == 3
    info = real.server_info()
    assert info.generated_tokens == left + 3
    assert info.welcome.load.running <= 1


def test_the_coordinator_is_slim(real: Service, place: Path) -> None:
    """No coordinator has torch, vLLM or transformers in it, not even after a request."""
    maps = {part.path for part in child(real.coordinator, "coordinator").memory_maps()}
    assert not [path for path in maps if HEAVY.search(path)]
    assert [path for path in {part.path for part in child(real.coordinator, "worker").memory_maps()} if "torch" in path]

    arguments = ["coordinator", "--port", "0", "--worker", real.addresses[0]]
    with running(arguments, place, "imports", {"PYTHONPROFILEIMPORTTIME": "1"}) as process:
        url = process.wait_for(r"is ready: (http://\S+)")[1]
        case = chat(SUM, max_tokens=2)
        assert httpx.post(url + case.path, json=case.body, timeout=60).status_code == 200
        process.stop()
        imported = set(re.findall(r"^import time:.*\| +(\w+)", process.log, re.MULTILINE))

    assert "tokenizers" in imported
    assert not [name for name in imported if HEAVY.search(name)]


@pytest.mark.long
def test_ctrl_c_lets_a_real_engine_finish(place: Path) -> None:
    """Though a terminal sends it to all of the engine's processes, streams are finished; then all end by themselves."""
    address = f"unix:{place}/worker.sock"
    arguments = ["worker", "--listen", address, "--", *ENGINE_ARGUMENTS]
    with running(arguments, place, "worker", environment()) as worker:
        worker.wait_for(r"ready: .* on (\S+)", START_TIMEOUT_S)
        family = psutil.Process(worker.popen.pid).children(recursive=True)
        with coordinator(place, [address]) as (_, url):
            service = Service(worker, url, [worker], [address])
            with Reader(url, chat(STORY, ignore_eos=True, max_tokens=60, stream=True)) as reader:
                service.wait_slots(1)

                os.killpg(worker.popen.pid, signal.SIGINT)

            assert worker.wait_exit(60) == 0
            assert "force killing" not in worker.log
            assert "still running after grace period" not in worker.log
            assert "leaked" not in worker.log
            assert "draining 1 open slot(s)" in worker.log
            assert '"finish_reason":"length"' in reader.text
            assert reader.text.endswith("data: [DONE]\n\n")
    _, alive = psutil.wait_procs(family, timeout=15)
    assert not alive


def _wait_tokens(real: Service, count: int) -> None:
    """Wait until the engine has generated a number of tokens since its start."""
    deadline = time.monotonic() + 30
    while real.server_info().generated_tokens < count:
        assert time.monotonic() < deadline, real.coordinator.log
