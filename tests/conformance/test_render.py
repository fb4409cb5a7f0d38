"""The render and derender routes beside vLLM's: equal JSON, and requests that either server's /generate takes."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conformance.parity.wording import translated, without_quotes
from tests.conformance.render_cases import CALLED, CHAT, PARSED, TOOL, TURNS, USER, renders
from tests.conformance.servers import PARSERS, PLAIN, START_TIMEOUT_S, VllmServer, lean_environment, running_service
from tests.ports import free_port
from tests.processes import Process, simulated_service
from tokenwire.process.shared_options import default_cache_dir
from tokenwire.worker.vllm_engine.embedded_model import EMBEDDED_MODEL_NAME, prepare_embedded_model

_TRUST = ("--trust-request-chat-template",)
_CONTEXT = 8192

STRICTER = {"an unknown id": "vLLM's renderer leaves the vocabulary to the engine"}
"""Requests that only tokenwire rejects."""
OTHER_WORDS = {
    "too long": "tokenwire's message has the phrases that clients match on",
    "two continuations": "tokenwire rejects both before the template is looked at",
    "an empty list of ids": "as on the other routes",
    "a negative id": "as on the other routes",
}
"""Errors that have the same status, but another message."""


@contextmanager
def running_renderer(folder: Path, options: Sequence[str] = ()) -> Iterator[str]:
    """Run `vllm launch render` with the embedded model; yield its URL."""
    model = prepare_embedded_model(default_cache_dir(), lambda _: None)
    port = free_port()
    arguments = ["--model", str(model), "--served-model-name", EMBEDDED_MODEL_NAME, "--port", str(port)]
    arguments += ["--host", "127.0.0.1", "--max-model-len", str(_CONTEXT), *options]
    program = (sys.executable, "-m", "vllm.entrypoints.launchers.render.entry")
    process = Process(arguments, folder / "render.log", lean_environment(first=True), program)
    try:
        process.wait_for("Application startup complete", START_TIMEOUT_S)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.stop()


@contextmanager
def both(folder: Path, options: Sequence[str] = ()) -> Iterator[tuple[str, str]]:
    """Run vLLM's renderer, and tokenwire in front of a simulated engine; yield their URLs."""
    model = str(prepare_embedded_model(default_cache_dir(), lambda _: None))
    worker = (model, "--served-model-name", EMBEDDED_MODEL_NAME, "--sim-max-model-len", str(_CONTEXT))
    coordinator = (*options, "--allow-kv-transfer-params")
    with (
        running_renderer(folder, options) as theirs,
        simulated_service(folder, *worker, coordinator_options=coordinator) as service,
    ):
        yield theirs, service.url


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Both servers without parsers."""
    with both(tmp_path_factory.mktemp("plain"), _TRUST) as urls:
        yield urls


def answered(url: str, path: str, body: dict[str, Any]) -> tuple[int, Any]:
    """Return the status and the JSON of a response."""
    response = httpx.post(url + path, json=body, timeout=120)
    return response.status_code, response.json()


def comparable(rendered: dict[str, Any]) -> dict[str, Any]:
    """Return a GenerateRequest without what is new in each, and without what means nothing in vLLM's."""
    prefix, _, rest = rendered["request_id"].partition("-")
    params = {"max_tokens": 16, **rendered["sampling_params"]}  # by mistake, vLLM omits the default of another field
    if "structured_outputs" in params:
        grammar = params["structured_outputs"].items()
        params["structured_outputs"] = {name: value for name, value in grammar if not name.startswith("_")}
    kwargs = rendered["reasoning_parser_kwargs"]
    if kwargs is not None:  # vLLM gives every model's template an argument for Cohere's
        shown = kwargs["chat_template_kwargs"]
        kwargs = {"chat_template_kwargs": {name: value for name, value in shown.items() if name != "cohere_format"}}
    rendered = {**rendered, "reasoning_parser_kwargs": kwargs}
    return {**rendered, "request_id": (prefix, rest[len(rest.split("-")[0]) :]), "sampling_params": params}


@pytest.mark.engine
@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "path", "body"),
    [pytest.param(*case, id=f"{case[1][3:7]} {case[0]}") for case in renders(EMBEDDED_MODEL_NAME)],
)
def test_both_render_the_same(name: str, path: str, body: dict[str, Any], plain: tuple[str, str]) -> None:
    """The same ids, sampling parameters and other fields, or the same error."""
    _compare_renderings(name, path, body, plain)


@pytest.mark.engine
@pytest.mark.long
def test_both_render_the_same_with_parsers(tmp_path: Path) -> None:
    """Parsers adjust requests: grammars of tools, and what engines have to know of the template's arguments."""
    with both(tmp_path, PARSERS) as urls:
        for name, body in PARSED.items():
            _compare_renderings(name, CHAT, {"model": EMBEDDED_MODEL_NAME, **body}, urls)


def _compare_renderings(name: str, path: str, body: dict[str, Any], urls: tuple[str, str]) -> None:
    (their_status, theirs), (our_status, ours) = (answered(url, path, body) for url in urls)

    assert our_status == (400 if name in STRICTER else their_status)
    if their_status == 200 == our_status:
        lists = [each if isinstance(each, list) else [each] for each in (theirs, ours)]
        assert [comparable(each) for each in lists[1]] == [comparable(each) for each in lists[0]]
    elif name not in OTHER_WORDS | STRICTER:
        expected = translated(theirs["error"])
        assert without_quotes(ours["error"]["message"]) == expected["message"]
        assert ours["error"]["param"] == expected["param"] or expected["param"] is None


GREEDY = {"model": EMBEDDED_MODEL_NAME, "temperature": 0}
TALKS: dict[str, dict[str, Any]] = {
    "turns": {**GREEDY, "messages": TURNS, "max_tokens": 12},
    "a stop string": {**GREEDY, "messages": [USER], "max_tokens": 30, "stop": ["Paris"]},
    "a grammar": {**GREEDY, "messages": [USER], "max_tokens": 20, "structured_outputs": {"regex": "[a-z]{5}"}},
    "a schema": {
        **GREEDY,
        "messages": [USER],
        "max_tokens": 30,
        "response_format": {"type": "json_object"},
    },
    "a seed and log-probabilities": {
        "model": EMBEDDED_MODEL_NAME,
        "messages": [USER],
        "max_tokens": 8,
        "seed": 5,
        "temperature": 0.8,
        "logprobs": True,
        "top_logprobs": 2,
    },
    "sixteen tokens": {**GREEDY, "messages": [USER], "max_tokens": 16, "ignore_eos": True},
    "tools": {**GREEDY, "messages": CALLED, "tools": [TOOL], "tool_choice": "none", "max_tokens": 8},
}


@pytest.mark.engine
@pytest.mark.long
@pytest.mark.timeout(900)
def test_either_server_generates_what_either_rendered(tmp_path: Path) -> None:
    """The ids of all four pairs are those of the chat, and derendered by either they are its message."""
    vllm = VllmServer(tmp_path, PLAIN)
    try:
        vllm.wait_ready()
        with running_service(tmp_path) as service:
            urls = {"vllm": vllm.url, "tokenwire": service.url}
            for name, body in TALKS.items():
                _compare(name, body, urls)
    finally:
        vllm.stop()


def _compare(name: str, body: dict[str, Any], urls: dict[str, str]) -> None:
    chat = answered(urls["vllm"], "/v1/chat/completions", {**body, "return_token_ids": True})[1]
    expected = chat["choices"][0]
    for renderer, render_url in urls.items():
        status, rendered = answered(render_url, CHAT, body)
        assert status == 200, (name, renderer, rendered)
        if renderer == "vllm" and rendered["sampling_params"].get("max_tokens") is None:
            rendered["sampling_params"]["max_tokens"] = 16  # as vLLM leaves it out, its server would go on
        for generator, generate_url in urls.items():
            status, generated = answered(generate_url, "/inference/v1/generate", rendered)
            assert status == 200, (name, renderer, generator, generated)
            (choice,) = generated["choices"]
            assert choice["token_ids"] == expected["token_ids"], (name, renderer, generator)
            assert choice["finish_reason"] == expected["finish_reason"], (name, renderer, generator)
            assert choice["stop_reason"] == expected["stop_reason"], (name, renderer, generator)
            body_back = {
                "generate_response": generated,
                "prompt_token_ids": rendered["token_ids"],
                "chat_request": body,
            }
            status, message = answered(urls["tokenwire"], "/v1/chat/completions/derender", body_back)
            assert status == 200, (name, renderer, generator, message)
            (shown,) = message["choices"]
            assert shown["message"]["content"] == expected["message"]["content"], (name, renderer, generator)
            assert _scored_tokens(shown["logprobs"]) == _scored_tokens(expected["logprobs"]), (
                name,
                renderer,
                generator,
            )


def _scored_tokens(logprobs: Any) -> list[tuple[str, list[str]]] | None:
    if logprobs is None:
        return None
    return [(each["token"], [top["token"] for top in each["top_logprobs"]]) for each in logprobs["content"]]
