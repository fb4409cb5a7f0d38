"""`python -m benchmarks.walk`: the calls of one chat through the coordinator, from its arrival to its submission."""

import json
import os
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from http.client import HTTPConnection
from pathlib import Path
from types import FrameType
from typing import Any

import click

from benchmarks.processes import measured
from tokenwire.coordinator.auth.api_keys import AuthSettings, parse_keys
from tokenwire.coordinator.server import CoordinatorServer
from tokenwire.coordinator.settings import CoordinatorSettings

_ROOT = Path(__file__).resolve().parents[1]
_WARM_UP, _WALKS = 3, 5
_CHAT = {"messages": [{"role": "user", "content": "Say hello, please."}], "max_tokens": 3, "stream": True}
_TOOL = {"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}
BODIES: dict[str, dict[str, Any]] = {
    "plain": {},
    "stop": {"stop": ["###"], "temperature": 0.7},
    "choices": {"n": 2, "logprobs": True, "temperature": 0.7},
    "conversation": {"session_id": "walk"},
    "ids": {"return_token_ids": True},
    "tools": {"tools": [_TOOL], "tool_choice": "none"},
    "structured": {"response_format": {"type": "json_schema", "json_schema": {"name": "any", "schema": {}}}},
}
"""Fields that a chat has besides its message."""
WITH_KEY = "key"
"""The kind of a plain chat with an API key."""

_KEY = "walk"
_HEADERS = {"Content-Type": "application/json", "Authorization": f"Bearer {_KEY}"}

Step = tuple[str, str]
"""A file of the repository and the function in it that was called."""


def path_in_coordinator(path: str) -> str:
    """Return the path in the repository; empty for files outside of the coordinator."""
    real = Path(os.path.realpath(path))
    inside = real.is_relative_to(_ROOT)
    name = str(real.relative_to(_ROOT)) if inside else ""
    counts = name.startswith(("coordinator/", "tokenwire/")) and not name.startswith("tokenwire/v1/")
    return name if counts else ""


class Walk:
    """A profile function for sys.setprofile: records each call into another file than the call before it."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.on = False
        self._names: dict[str, str] = {}

    def begin(self) -> None:
        """Wait for the next request."""
        self.steps = []
        self.on = True

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        """Record a call, from the parser's first callback to the session's submit."""
        if not self.on or event != "call":
            return
        name, function = self._name(frame.f_code.co_filename), frame.f_code.co_qualname
        if not name or not (self.steps or function.endswith("on_message_begin")):
            return
        if not self.steps or self.steps[-1][0] != name:
            self.steps.append((name, function))
        if function == "WorkerSession.submit":
            self.on = False

    def _name(self, path: str) -> str:
        if path not in self._names:
            self._names[path] = path_in_coordinator(path)
        return self._names[path]


def post_chat(port: int, fields: Mapping[str, Any]) -> str:
    """Send a short chat with these fields, and return what it streams."""
    body = {**_CHAT, **fields}
    connection = HTTPConnection("127.0.0.1", port)
    connection.request("POST", "/v1/chat/completions", json.dumps(body), _HEADERS)
    return connection.getresponse().read().decode()


def _model(port: int) -> str:
    while True:
        connection = HTTPConnection("127.0.0.1", port)
        connection.request("GET", "/v1/models", headers=_HEADERS)
        models = json.load(connection.getresponse())["data"]
        if models:
            return str(models[0]["id"])
        time.sleep(0.05)


def walks() -> dict[str, list[Step]]:
    """Return the shortest of a few walks of each kind: the others include background work, such as heartbeats."""
    with_key = AuthSettings(keys=tuple(parse_keys(_KEY, "walk")))
    return _walks(BODIES, AuthSettings()) | _walks({WITH_KEY: {}}, with_key)


def _walks(bodies: Mapping[str, dict[str, Any]], auth: AuthSettings) -> dict[str, list[Step]]:
    walked = Walk()
    shortest: dict[str, list[Step]] = {}

    def send_chats(port: int, model: str) -> None:
        for name, fields in bodies.items():
            taken = []
            for _ in range(_WARM_UP + _WALKS):
                walked.begin()
                response = post_chat(port, {**fields, "model": model})
                if walked.on:  # a simulated engine may refuse it after its submission
                    raise RuntimeError(response)
                taken.append(walked.steps)
            shortest[name] = min(taken[_WARM_UP:], key=len)

    profile_coordinator(walked, send_chats, auth)
    return shortest


def profile_coordinator(
    profile: Callable[[FrameType, str, Any], Any],
    send: Callable[[int, str], None],
    auth: AuthSettings,
    install: Callable[[Callable[[FrameType, str, Any], Any] | None], None] = sys.setprofile,
) -> None:
    """Run a coordinator under a profile function, with a simulated worker, while `send` gets its port and model.

    `install` lets this thread call the function: `sys.settrace` for a trace function.
    """
    with tempfile.TemporaryDirectory() as folder, socket.create_server(("127.0.0.1", 0)) as bound:
        address = f"unix:{folder}/worker.sock"
        server = CoordinatorServer(CoordinatorSettings((address,), auth=auth), bound)

        def run_client() -> None:
            port = bound.getsockname()[1]
            try:
                send(port, _model(port))
            finally:
                server.should_exit = True

        with measured(["worker", "--engine", "sim", "--listen", address]):
            client = threading.Thread(target=run_client)
            client.start()
            install(profile)  # of this thread alone
            try:
                server.run_bound()
            finally:
                install(None)
                client.join()


def files(steps: Sequence[Step]) -> list[str]:
    """Return the files of a walk, in the order of their first call."""
    return list(dict.fromkeys(name for name, _ in steps))


@click.command()
@click.option("--kind", type=click.Choice([*BODIES, WITH_KEY]), default="plain", help="Which chat's calls to print.")
def main(kind: str) -> None:
    """Print a chat's calls from its arrival to its submission, and how many files and moves each kind of chat takes."""
    taken = walks()
    for name, function in taken[kind]:
        click.echo(f"{name:50} {function}")
    for each, steps in taken.items():
        click.echo(f"{each}: {len(files(steps))} files, {len(steps) - 1} moves between files")


if __name__ == "__main__":
    main()
