"""`tokenwire chat`: a conversation in the terminal, with any server of OpenAI's API."""

import contextlib
import http.client
import json
import signal
import sys
import urllib.error
import urllib.request
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field

import click

from tokenwire.cli.click_options import Given, build, options_command
from tokenwire.cli.main import SUMMARIES
from tokenwire.errors import TokenwireError, Unavailable
from tokenwire.options import Bounds, Option, Section, declared, option

_HELP = """/help    this list
/reset   forget the conversation
/quit    leave; Ctrl-D too
Ctrl-C   end a reply early"""


@dataclass(frozen=True, slots=True)
class ChatOptions:
    """Options of `tokenwire chat`."""

    url: str = option(
        "http://127.0.0.1:8000", Option("--url", "URL of the server, with or without /v1 at its end.", Section.CHAT)
    )
    model: str | None = option(
        None, Option("--model", "Model to talk to.", Section.CHAT, default_text="the server's first")
    )
    system: str | None = option(None, Option("--system", "System message of the conversation.", Section.CHAT))
    temperature: float | None = option(
        None,
        Option(
            "--temperature",
            "Temperature of replies; 0: always the most likely token.",
            Section.CHAT,
            bounds=Bounds(at_least=0),
            default_text="the server's",
        ),
    )
    max_tokens: int | None = option(
        None,
        Option(
            "--max-tokens",
            "Tokens after which a reply ends.",
            Section.CHAT,
            bounds=Bounds(at_least=1),
            default_text="the server's",
        ),
    )
    api_key: str | None = option(
        None, Option("--api-key", "API key of the server.", Section.CHAT, variable="OPENAI_API_KEY")
    )


CHAT_OPTIONS = declared(ChatOptions)


@options_command(SUMMARIES["chat"], CHAT_OPTIONS)
def command(given: Given) -> None:
    """Send what is typed, and print the replies."""
    options = build(ChatOptions, given.values)
    server = Server(options.url, options.api_key)
    asked = {"temperature": options.temperature, "max_tokens": options.max_tokens}
    sampling = {name: value for name, value in asked.items() if value is not None}
    conversation = Dialogue(server, options.model or server.first_model(), options.system, sampling)
    terminal = sys.stdin.isatty()
    if terminal:
        # A shell may start background jobs with SIGINT ignored; here Ctrl-C ends replies.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401  (gives input() history and editing)
        click.echo(f"{conversation.model} at {server.url}; /help for help, Ctrl-D to leave")
    while (line := _read("> " if terminal else "")) is not None and line != "/quit":
        match line:
            case "":
                pass
            case "/help":
                click.echo(_HELP)
            case "/reset":
                conversation.reset()
            case _ if line.startswith("/"):
                click.echo(f"Unknown command {line.split()[0]}; /help lists the commands.", err=True)
            case _:
                _answer(conversation, line)


def _read(prompt: str) -> str | None:
    """Read a line; None at the end of input. Ctrl-C discards the line."""
    try:
        return input(prompt).strip()
    except EOFError:
        if prompt:
            click.echo()
        return None
    except KeyboardInterrupt:
        click.echo()
        return ""


def _answer(conversation: "Dialogue", line: str) -> None:
    try:
        with contextlib.closing(conversation.send(line)) as pieces:
            for piece in pieces:
                click.echo(_printable(piece), nl=False)
        click.echo()
    except KeyboardInterrupt:
        click.echo(" [ended]")
    except TokenwireError as error:
        click.echo(f"tokenwire: {error.message}", err=True)


def _printable(text: str) -> str:
    """Return text without characters that control the terminal."""
    return "".join(character for character in text if character.isprintable() or character in "\n\t")


class Server:
    """A client of OpenAI's API."""

    def __init__(self, url: str, api_key: str | None) -> None:
        self.url = url.rstrip("/").removesuffix("/v1")
        self._headers = {"Content-Type": "application/json"}
        if api_key:
            self._headers["Authorization"] = f"Bearer {api_key}"

    def first_model(self) -> str:
        """Return the first model of the server's list. Raises Unavailable."""
        with self._open("/v1/models") as response:
            models = json.load(response)["data"]
        if not models:
            raise Unavailable(f"{self.url} serves no model yet.")
        return str(models[0]["id"])

    def stream(self, body: Mapping[str, object]) -> Iterator[bytes]:
        """Yield the chunks of a streamed chat completion, as JSON. Raises Unavailable."""
        with self._open("/v1/chat/completions", json.dumps({**body, "stream": True}).encode()) as response:
            try:
                for line in response:
                    if line.startswith(b"data: ") and line.strip() != b"data: [DONE]":
                        yield line[6:]
            except (OSError, http.client.HTTPException) as error:
                raise Unavailable(f"The connection broke during the reply: {error}") from error

    def _open(self, path: str, body: bytes | None = None) -> http.client.HTTPResponse:
        request = urllib.request.Request(self.url + path, body, self._headers)  # noqa: S310  (the user's own)
        try:
            response: http.client.HTTPResponse = urllib.request.urlopen(request)  # noqa: S310
        except urllib.error.HTTPError as error:
            with error:
                raise Unavailable(
                    _message(error.read()) or f"{self.url} responded with {error.code} {error.reason}"
                ) from error
        except OSError as error:
            reason = getattr(error, "reason", error)
            raise Unavailable(f"{self.url} cannot be reached: {reason}. Is `tokenwire serve` running?") from error
        return response


@dataclass(slots=True)
class Dialogue:
    """The turns so far, including the shown part of replies that ended early."""

    server: Server
    model: str
    system: str | None = None
    sampling: Mapping[str, float] = field(default_factory=dict)
    """Further fields of each request."""
    messages: list[dict[str, str]] = field(default_factory=list)

    def reset(self) -> None:
        """Delete all turns."""
        self.messages.clear()

    def send(self, text: str) -> Generator[str, None, None]:
        """Yield the reply in pieces. A question without a reply is not kept."""
        question = {"role": "user", "content": text}
        system = [{"role": "system", "content": self.system}] if self.system else []
        body = {**self.sampling, "model": self.model, "messages": [*system, *self.messages, question]}
        reply: list[str] = []
        try:
            for data in self.server.stream(body):
                chunk = json.loads(data)
                if "error" in chunk:
                    raise Unavailable(_message(data) or "The server aborted the reply.")
                for choice in chunk.get("choices", []):
                    piece = choice.get("delta", {}).get("content")
                    if piece:
                        reply.append(piece)
                        yield piece
        finally:
            if reply:
                self.messages += [question, {"role": "assistant", "content": "".join(reply)}]


def _message(body: bytes) -> str:
    """Return the message of an error, in OpenAI's format or in FastAPI's."""
    try:
        response = json.loads(body)
    except ValueError:
        return ""
    error = response.get("error", response) if isinstance(response, dict) else {}
    return str((error.get("message") or error.get("detail") or "") if isinstance(error, dict) else error)
