"""`tokenwire chat`, as a process, against a server that says what it is told to."""

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
    """OpenAI's API, as far as a chat goes."""

    server: "Backend"

    def do_GET(self) -> None:
        self._send(200, json.dumps({"data": [{"id": "first"}, {"id": "second"}]}).encode())

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append((body, self.headers.get("Authorization")))
        self.server.replies.pop(0)(self)

    def log_message(self, *_: Any) -> None:
        """Stay silent."""

    def stream(self, *pieces: str) -> None:
        """Send pieces of a reply, each in a chunk of its own."""
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
    """A server with the replies that it is to give, and what it was asked."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[tuple[dict[str, Any], str | None]] = []
        self.replies: list[Reply] = []
        self.url = f"http://127.0.0.1:{self.server_address[1]}"

    def messages(self, number: int) -> list[tuple[str, str]]:
        """Return what a request held, as roles and texts."""
        return [(each["role"], each["content"]) for each in self.asked[number][0]["messages"]]


@pytest.fixture
def backend() -> Iterator[Backend]:
    """A server that runs."""
    with Backend() as server:
        thread = threading.Thread(target=server.serve_forever, args=[0.05])
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def says(*pieces: str) -> Reply:
    """Reply with these pieces."""
    return lambda handler: handler.stream(*pieces)


def fails(status: int, body: bytes) -> Reply:
    """Refuse."""
    return lambda handler: handler._send(status, body)


def chat(url: str, typed: str, *options: str) -> "subprocess.CompletedProcess[str]":
    """Run a chat with these lines, to its end."""
    command = [sys.executable, "-P", "-m", "tokenwire", "chat", "--url", url, *options]
    return subprocess.run(command, input=typed, capture_output=True, text=True, timeout=30)


def test_a_conversation_is_kept_until_it_is_reset(backend: Backend) -> None:
    """Each request has the turns before it, and the system's words; the first model is the default."""
    backend.replies += [says("Hel", "lo."), says("Fine."), says("Again.")]

    ran = chat(backend.url, "Hi\nHow are you?\n/reset\nHi\n", "--system", "Be brief.")

    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "Hello.\nFine.\nAgain.\n", "")
    start = [("system", "Be brief."), ("user", "Hi")]
    assert backend.messages(0) == backend.messages(2) == start
    assert backend.messages(1) == [*start, ("assistant", "Hello."), ("user", "How are you?")]
    assert {body["model"] for body, _ in backend.asked} == {"first"}


def test_a_base_url_as_clients_have_it_and_a_key(backend: Backend) -> None:
    """With /v1 at the end, another model, and the key that OpenAI's clients send."""
    backend.replies.append(says("Hello."))

    ran = chat(f"{backend.url}/v1/", "Hi\n", "--model", "second", "--api-key", "sk-1")

    assert ran.stdout == "Hello.\n"
    ((body, key),) = backend.asked
    assert (body["model"], key) == ("second", "Bearer sk-1")


def test_help_and_what_there_is_not(backend: Backend) -> None:
    """Commands are no messages; a wrong one is told so."""
    ran = chat(backend.url, "/help\n\n/nonsense\n/quit\nnever sent\n")

    assert "/reset" in ran.stdout
    assert "There is no /nonsense" in ran.stderr
    assert (ran.returncode, backend.asked) == (0, [])


@pytest.mark.parametrize(
    ("refusal", "shown"),
    [
        (fails(429, b'{"error": {"message": "Too many."}}'), "tokenwire: Too many."),
        (fails(401, b'{"detail": "No key."}'), "tokenwire: No key."),
        (fails(502, b"<html>"), "answers 502 Bad Gateway"),
    ],
)
def test_a_refusal_is_shown_and_the_question_forgotten(backend: Backend, refusal: Reply, shown: str) -> None:
    """With the server's words; the chat goes on."""
    backend.replies += [refusal, says("Hello.")]

    ran = chat(backend.url, "Too much\nHi\n")

    assert shown in ran.stderr
    assert ran.stdout == "Hello.\n"
    assert backend.messages(1) == [("user", "Hi")]


def test_an_error_in_mid_stream_keeps_what_was_shown(backend: Backend) -> None:
    """The reply so far is part of the conversation."""

    def breaks(handler: Handler) -> None:
        handler.stream("Half a")
        handler.wfile.write(b'data: {"error": {"message": "The worker is gone."}}\n\n')

    backend.replies += [breaks, says(" reply.")]

    ran = chat(backend.url, "Hi\nGo on\n")

    assert "tokenwire: The worker is gone." in ran.stderr
    assert backend.messages(1) == [("user", "Hi"), ("assistant", "Half a"), ("user", "Go on")]


def test_replies_do_not_steer_the_terminal(backend: Backend) -> None:
    """Escape sequences are left out."""
    backend.replies.append(says("a\x1b]0;title\x07b\tc\nd"))

    assert chat(backend.url, "Hi\n").stdout == "a]0;titleb\tc\nd\n"


def test_a_server_that_is_not_there_is_one_line() -> None:
    """With the address, and what might be missing."""
    ran = chat("http://127.0.0.1:9", "Hi\n")

    assert ran.returncode == 1
    assert ran.stderr.startswith("tokenwire: http://127.0.0.1:9 cannot be reached")
    assert len(ran.stderr.splitlines()) == 1


def test_ctrl_c_ends_a_reply_and_ctrl_d_the_chat(backend: Backend) -> None:
    """In a terminal: the reply's connection is closed, the rest of the conversation goes on, and the code is 0."""
    left = threading.Event()

    def endless(handler: Handler) -> None:
        try:
            while True:
                handler.stream("more ")
        except OSError:
            left.set()

    backend.replies += [endless, says("Hello.")]
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
