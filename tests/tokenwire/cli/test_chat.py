"""`tokenwire chat` as a process, with a scripted server."""

import json
import os
import pty
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

Reply = Callable[["Handler"], None]


class Handler(BaseHTTPRequestHandler):
    """The part of OpenAI's API that a chat uses."""

    server: "Backend"

    def do_GET(self) -> None:
        self._send(200, json.dumps({"data": [{"id": "first"}, {"id": "second"}]}).encode())

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.requests.append((body, self.headers.get("Authorization")))
        self.server.replies.pop(0)(self)

    def log_message(self, *_: Any) -> None:
        """Log nothing."""

    def stream(self, *pieces: str) -> None:
        """Send pieces of a reply, one chunk each."""
        self.send_response(200)
        self.end_headers()
        for piece in pieces:
            chunk = {"choices": [{"index": 0, "delta": {"content": piece}}]}
            self.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.end_headers()
        self.wfile.write(body)


class Backend(ThreadingHTTPServer):
    """A server with scripted replies, which records requests."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.requests: list[tuple[dict[str, Any], str | None]] = []
        self.replies: list[Reply] = []
        self.url = f"http://127.0.0.1:{self.server_address[1]}"

    def messages(self, number: int) -> list[tuple[str, str]]:
        """Return the roles and texts of a request's messages."""
        return [(each["role"], each["content"]) for each in self.requests[number][0]["messages"]]


@pytest.fixture
def backend() -> Iterator[Backend]:
    """A running server."""
    with Backend() as server:
        thread = threading.Thread(target=server.serve_forever, args=[0.05])
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def replies_with(*pieces: str) -> Reply:
    """Return a handler that replies with these pieces."""
    return lambda handler: handler.stream(*pieces)


def fails(status: int, body: bytes) -> Reply:
    """Return a handler that responds with an error."""
    return lambda handler: handler._send(status, body)


def run_chat(url: str, typed: str, *options: str) -> "subprocess.CompletedProcess[str]":
    """Run a chat with these lines as its input."""
    command = [sys.executable, "-P", "-m", "tokenwire", "chat", "--url", url, *options]
    return subprocess.run(command, input=typed, capture_output=True, text=True, timeout=30)


def test_a_conversation_is_kept_until_it_is_reset(backend: Backend) -> None:
    """Each request has the turns before it, and the system message; the first model is the default."""
    backend.replies += [replies_with("Hel", "lo."), replies_with("Fine."), replies_with("Again.")]

    ran = run_chat(backend.url, "Hi\nHow are you?\n/reset\nHi\n", "--system", "Be brief.")

    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "Hello.\nFine.\nAgain.\n", "")
    start = [("system", "Be brief."), ("user", "Hi")]
    assert backend.messages(0) == backend.messages(2) == start
    assert backend.messages(1) == [*start, ("assistant", "Hello."), ("user", "How are you?")]
    assert {body["model"] for body, _ in backend.requests} == {"first"}


def test_the_options_of_a_chat(backend: Backend) -> None:
    """A base URL with /v1 at its end, another model, a key, and sampling, which is else the server's."""
    backend.replies += [replies_with("Hello.")] * 2
    sampling = ["--temperature", "0", "--max-tokens", "5"]

    ran = run_chat(f"{backend.url}/v1/", "Hi\n", "--model", "second", "--api-key", "sk-1", *sampling)
    run_chat(backend.url, "Hi\n")

    assert ran.stdout == "Hello.\n"
    ((body, key), (by_default, _)) = backend.requests
    assert (body["model"], key) == ("second", "Bearer sk-1")
    assert (body["temperature"], body["max_tokens"]) == (0, 5)
    assert by_default.keys() == {"model", "messages", "stream"}


def test_help_and_an_unknown_command(backend: Backend) -> None:
    """Commands are not sent as messages; an unknown one is reported."""
    ran = run_chat(backend.url, "/help\n\n/nonsense\n/quit\nnever sent\n")

    assert "/reset" in ran.stdout
    assert "Unknown command /nonsense" in ran.stderr
    assert (ran.returncode, backend.requests) == (0, [])


@pytest.mark.parametrize(
    ("refusal", "shown"),
    [
        (fails(429, b'{"error": {"message": "Too many."}}'), "tokenwire: Too many."),
        (fails(401, b'{"detail": "No key."}'), "tokenwire: No key."),
        (fails(502, b"<html>"), "responded with 502 Bad Gateway"),
    ],
)
def test_an_error_is_shown_and_the_question_is_not_kept(backend: Backend, refusal: Reply, shown: str) -> None:
    """The server's message is shown, and the chat continues."""
    backend.replies += [refusal, replies_with("Hello.")]

    ran = run_chat(backend.url, "Too much\nHi\n")

    assert shown in ran.stderr
    assert ran.stdout == "Hello.\n"
    assert backend.messages(1) == [("user", "Hi")]


def test_an_error_mid_stream_keeps_the_shown_text(backend: Backend) -> None:
    """The reply so far is part of the conversation."""

    def breaks(handler: Handler) -> None:
        handler.stream("Half a")
        handler.wfile.write(b'data: {"error": {"message": "The worker is gone."}}\n\n')

    backend.replies += [breaks, replies_with(" reply.")]

    ran = run_chat(backend.url, "Hi\nGo on\n")

    assert "tokenwire: The worker is gone." in ran.stderr
    assert backend.messages(1) == [("user", "Hi"), ("assistant", "Half a"), ("user", "Go on")]


def test_replies_cannot_control_the_terminal(backend: Backend) -> None:
    """Escape characters are removed."""
    backend.replies.append(replies_with("a\x1b]0;title\x07b\tc\nd"))

    assert run_chat(backend.url, "Hi\n").stdout == "a]0;titleb\tc\nd\n"


def test_an_unreachable_server_is_reported_in_one_line() -> None:
    """With its address, and a likely reason."""
    ran = run_chat("http://127.0.0.1:9", "Hi\n")

    assert ran.returncode == 1
    assert ran.stderr.startswith("tokenwire: http://127.0.0.1:9 cannot be reached")
    assert len(ran.stderr.splitlines()) == 1


def test_ctrl_c_ends_a_reply_and_ctrl_d_the_chat(backend: Backend) -> None:
    """In a terminal: the reply's connection is closed, the conversation continues, and the exit code is 0."""
    left = threading.Event()

    def endless(handler: Handler) -> None:
        try:
            while True:
                handler.stream("more ")
        except OSError:
            left.set()

    backend.replies += [endless, replies_with("Hello.")]
    terminal, child_side = pty.openpty()
    command = [sys.executable, "-P", "-m", "tokenwire", "chat", "--url", backend.url]
    with subprocess.Popen(command, stdin=child_side, stdout=child_side, stderr=child_side) as process:
        os.close(child_side)
        seen = ""

        def wait_for(text: str) -> None:
            nonlocal seen
            while text not in seen:
                seen += os.read(terminal, 4096).decode()
            seen = seen.partition(text)[2]

        wait_for("> ")
        os.write(terminal, b"Hi\n")
        wait_for("more more")
        process.send_signal(signal.SIGINT)
        wait_for("[ended]")
        assert left.wait(10)
        wait_for("> ")
        os.write(terminal, b"And now?\n")
        wait_for("Hello.")
        wait_for("> ")
        os.write(terminal, b"\x04")

        assert process.wait(10) == 0
    os.close(terminal)
    assert [role for role, _ in backend.messages(1)] == ["user", "assistant", "user"]
