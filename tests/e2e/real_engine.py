"""The same requests to real vLLM and to tokenwire, and what of their answers has to be equal."""

import inspect
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil
from openai import OpenAI
from openai.resources.chat.completions import Completions as ChatResource
from openai.resources.completions import Completions as TextResource

from tests.processes import Process, Service
from tokenwire.paths import default_cache_dir
from worker.embedded_model import EMBEDDED_MODEL_NAME, prepare_embedded_model

MODEL = EMBEDDED_MODEL_NAME
CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"
MAX_MODEL_LEN = 2048
ENGINE_ARGUMENTS = ["--dtype", "float32", "--enforce-eager", "--max-model-len", str(MAX_MODEL_LEN)]
"""In float32 a sequence does not depend on what else is in its batch."""
_ENVIRONMENT = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"}
START_TIMEOUT_S = 240.0
MAX_TOKENS = 16
"""Where a case says nothing else."""

_CORES = sorted(os.sched_getaffinity(0))

_PARAMETERS = {
    CHAT: frozenset(inspect.signature(ChatResource.create).parameters),
    TEXT: frozenset(inspect.signature(TextResource.create).parameters),
}
_AT_A_TIME = 24


def environment(first: bool = False) -> dict[str, str]:
    """Return an engine's environment, bound to the first or the last core: by itself vLLM binds all to the first."""
    return {**_ENVIRONMENT, "VLLM_CPU_OMP_THREADS_BIND": str(_CORES[0 if first else -1])}


class VllmServer(Process):
    """vLLM's own API server with the same model and engine arguments."""

    def __init__(self, folder: Path) -> None:
        model = prepare_embedded_model(default_cache_dir(), lambda _: None)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self.log_path = folder / "vllm.log"
        module = "vllm.entrypoints.launchers.api_server.entry"
        command = [sys.executable, "-m", module, "--model", str(model), "--served-model-name", MODEL]
        command += ["--host", "127.0.0.1", "--port", str(port), *ENGINE_ARGUMENTS]
        with self.log_path.open("wb") as output:
            self.popen = subprocess.Popen(
                command,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **environment(first=True)},
                start_new_session=True,
            )

    def wait_ready(self) -> None:
        """Wait until it serves."""
        self.wait_for(r"Application startup complete", START_TIMEOUT_S)


@contextmanager
def serving(folder: Path) -> Iterator[Service]:
    """Run plain `tokenwire serve` with the embedded model."""
    process = Process(["serve", "--port", "0", "--", *ENGINE_ARGUMENTS], folder / "serve.log", environment())
    try:
        url = process.wait_for(r"is ready: (http://\S+)", START_TIMEOUT_S)[1]
        arguments = child(process, "worker").cmdline()
        yield Service(process, url, [], [arguments[arguments.index("--listen") + 1]])
    finally:
        process.stop()


def child(process: Process, part: str) -> psutil.Process:
    """Find a part of `tokenwire serve` among its children."""
    (found,) = [each for each in psutil.Process(process.popen.pid).children() if part in each.cmdline()[:4]]
    return found


@dataclass(frozen=True)
class Case:
    """A request, and how real vLLM must end its first choice for the case to test what it says."""

    body: dict[str, Any]
    path: str = CHAT
    ends: tuple[str, str | int | None] = ("length", None)
    """finish_reason and stop_reason."""


def chat(content: Any, ends: tuple[str, str | int | None] = ("length", None), **options: Any) -> Case:
    """Make a greedy chat case; options override, those that are None are left out."""
    messages = content if isinstance(content, list) else [{"role": "user", "content": content}]
    return _case(CHAT, {"messages": messages, "temperature": 0, "max_tokens": MAX_TOKENS, **options}, ends)


def text(prompt: Any, ends: tuple[str, str | int | None] = ("length", None), **options: Any) -> Case:
    """Make a greedy completion case; options override, those that are None are left out."""
    return _case(TEXT, {"prompt": prompt, "temperature": 0, "max_tokens": MAX_TOKENS, **options}, ends)


def _case(path: str, body: dict[str, Any], ends: tuple[str, str | int | None]) -> Case:
    return Case({name: value for name, value in body.items() if value is not None}, path, ends)


@dataclass
class ChoiceSeen:
    """A choice as a client has it in the end."""

    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    prompt_token_ids: list[int] = field(default_factory=list)
    role: str | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None


@dataclass
class Answer:
    """What two servers must agree on, from a whole answer or from the chunks of a stream."""

    objects: set[str]
    models: set[str]
    prompt_token_ids: list[int]
    usage: dict[str, int]
    choices: dict[int, ChoiceSeen] = field(default_factory=dict)
    """In the order in which they came."""


@dataclass
class Streamed(Answer):
    """A stream's content, and the order of what frames it."""

    opening: list[Any] = field(default_factory=list)
    """The deltas of chat before the first text."""
    finish_is_last: bool = True
    """No choice goes on after its finish reason."""
    usage_is_last: bool = True
    """The only chunk without choices is the last one, and the only one with usage."""


def whole_answer(answer: Mapping[str, Any]) -> Answer:
    """Read an answer that was not streamed."""
    seen = Answer({answer["object"]}, {answer["model"]}, answer.get("prompt_token_ids") or [], _usage(answer["usage"]))
    for choice in answer["choices"]:
        message = choice.get("message") or {"content": choice.get("text")}
        seen.choices[choice["index"]] = ChoiceSeen(
            message["content"],
            choice["token_ids"] or [],
            choice.get("prompt_token_ids") or [],
            message.get("role"),
            choice["finish_reason"],
            choice["stop_reason"],
        )
    return seen


def streamed_answer(chunks: list[dict[str, Any]]) -> Streamed:
    """Put a stream together."""
    seen = Streamed(
        {chunk["object"] for chunk in chunks}, {chunk["model"] for chunk in chunks}, [], _usage(chunks[-1]["usage"])
    )
    seen.usage_is_last = not chunks[-1]["choices"] and all(
        chunk["choices"] and not chunk.get("usage") for chunk in chunks[:-1]
    )
    assert len({chunk["id"] for chunk in chunks}) == 1
    for chunk in chunks:
        seen.prompt_token_ids = seen.prompt_token_ids or chunk.get("prompt_token_ids") or []
        for choice in chunk["choices"]:
            _add_delta(seen, choice)
    return seen


def _add_delta(seen: Streamed, choice: Mapping[str, Any]) -> None:
    part = seen.choices.setdefault(choice["index"], ChoiceSeen())
    delta = choice.get("delta") or {"content": choice.get("text")}
    if delta.get("role"):
        seen.opening.append((choice["index"], delta["role"], delta["content"], bool(part.text)))
        part.role = delta["role"]
    if part.finish_reason is not None:
        seen.finish_is_last = False
    part.text += delta.get("content") or ""
    part.token_ids += choice.get("token_ids") or []
    part.prompt_token_ids += choice.get("prompt_token_ids") or []
    part.finish_reason = choice["finish_reason"] or part.finish_reason
    if choice.get("stop_reason") is not None:
        part.stop_reason = choice["stop_reason"]


def _usage(usage: Mapping[str, Any]) -> dict[str, int]:
    return {name: value for name, value in usage.items() if value is not None}


@dataclass(frozen=True)
class Refused:
    """An error's outside."""

    status: int
    param: str | None


@dataclass(frozen=True)
class Recording:
    """All that one server answered."""

    whole: dict[str, Answer]
    streamed: dict[str, Streamed]
    streamed_with_ids: dict[str, Streamed]
    """The same with return_token_ids, which changes how chunks are made."""
    refused: dict[str, Refused]


def record(url: str, cases: Mapping[str, Case], invalid: Mapping[str, tuple[str, Any]]) -> Recording:
    """Send every request, several at a time."""
    with (
        OpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0, timeout=120) as client,
        ThreadPoolExecutor(_AT_A_TIME) as threads,
    ):

        def each(function: Callable[[Case], Any]) -> Iterator[Any]:
            return threads.map(function, cases.values())

        whole = each(lambda case: whole_answer(_ask(client, case, return_token_ids=True)))
        streamed = each(lambda case: streamed_answer(_stream(client, case)))
        with_ids = each(lambda case: streamed_answer(_stream(client, case, return_token_ids=True)))
        refused = threads.map(lambda request: refusal(url, *request), invalid.values())
        return Recording(
            dict(zip(cases, whole, strict=True)),
            dict(zip(cases, streamed, strict=True)),
            dict(zip(cases, with_ids, strict=True)),
            dict(zip(invalid, refused, strict=True)),
        )


def refusal(url: str, path: str, body: Any) -> Refused:
    """Send a request that must fail, as bare HTTP: the client's own checks stay out of the way."""
    content = body if isinstance(body, bytes) else json.dumps({"model": MODEL, **body}).encode()
    response = httpx.post(url + path, content=content, headers={"content-type": "application/json"}, timeout=60)
    return Refused(response.status_code, response.json().get("error", {}).get("param"))


def _ask(client: OpenAI, case: Case, **options: Any) -> dict[str, Any]:
    answer: dict[str, Any] = _create(client, case, **options).model_dump()
    return answer


def _stream(client: OpenAI, case: Case, **options: Any) -> list[dict[str, Any]]:
    stream = _create(client, case, stream=True, stream_options={"include_usage": True}, **options)
    return [chunk.model_dump() for chunk in stream]


def _create(client: OpenAI, case: Case, **options: Any) -> Any:
    """Call the client as a user would: what OpenAI does not know goes into extra_body."""
    body = {"model": MODEL, **case.body, **options}
    known = {name: value for name, value in body.items() if name in _PARAMETERS[case.path]}
    extra = {name: value for name, value in body.items() if name not in known}
    create: Any = client.chat.completions.create if case.path == CHAT else client.completions.create
    return create(**known, extra_body=extra)
