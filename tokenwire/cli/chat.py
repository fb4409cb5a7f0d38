"""`tokenwire chat`: a conversation in the terminal, with any server that has OpenAI's API."""

import contextlib
import http.client
import json
import signal
import sys
import urllib.error
import urllib.request
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from typing import Any

import click

from tokenwire.cli.main import option
from tokenwire.errors import TokenwireError, Unavailable

_HELP = """/help    this list
/reset   forget the conversation
/quit    leave, as Ctrl-D does
Ctrl-C   end a reply early"""


@click.command()
@option("--url", default="http://127.0.0.1:8000", help="The server, with or without /v1 at the end.")
@option("--model", help="Model to talk to. [default: the server's first]")
@option("--system", help="What the model is told before the conversation.")
@click.option("--api-key", envvar="OPENAI_API_KEY", show_envvar=True, help="Key, where the server asks for one.")
def command(url: str, model: str | None, system: str | None, api_key: str | None) -> None:
    """Talk to a model in the terminal, by any server that has OpenAI's API."""
    server = Server(url, api_key)
    conversation = Conversation(server, model or server.first_model(), system)
    terminal = sys.stdin.isatty()
    if terminal:
        # Whoever started the shell's job in the background may have had it ignored: Ctrl-C ends replies here.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401  (input() has history and editing then)
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
                click.echo(f"There is no {line.split()[0]}; /help lists what there is.", err=True)
            case _:
                _answer(conversation, line)


def _read(prompt: str) -> str | None:
    """Read a line, None at the end of input. Ctrl-C gives up the line."""
    try:
        return input(prompt).strip()
    except EOFError:
        if prompt:
            click.echo()
        return None
    except KeyboardInterrupt:
        click.echo()
        return ""


def _answer(conversation: "Conversation", line: str) -> None:
    try:
        with contextlib.closing(conversation.ask(line)) as pieces:
            for piece in pieces:
                click.echo(_printable(piece), nl=False)
        click.echo()
    except KeyboardInterrupt:
        click.echo(" [ended]")
    except TokenwireError as error:
        click.echo(f"tokenwire: {error.message}", err=True)


def _printable(text: str) -> str:
    """Leave out what would steer the terminal."""
    return "".join(character for character in text if character.isprintable() or character in "\n\t")


class Server:
    """Speaks OpenAI's API."""

    def __init__(self, url: str, api_key: str | None) -> None:
        self.url = url.rstrip("/").removesuffix("/v1")
        self._headers = {"Content-Type": "application/json"}
        if api_key:
            self._headers["Authorization"] = f"Bearer {api_key}"

    def first_model(self) -> str:
        """Ask which models there are. Raises Unavailable."""
        with self._open("/v1/models") as answer:
            models = json.load(answer)["data"]
        if not models:
            raise Unavailable(f"{self.url} serves no model yet.")
        return str(models[0]["id"])

    def stream(self, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield the chunks of a streamed chat completion. Raises Unavailable."""
        with self._open("/v1/chat/completions", json.dumps({**body, "stream": True}).encode()) as answer:
            try:
                for line in answer:
                    if line.startswith(b"data: ") and line.strip() != b"data: [DONE]":
                        yield json.loads(line[6:])
            except (OSError, http.client.HTTPException) as error:
                raise Unavailable(f"The reply broke off: {error}") from error

    def _open(self, path: str, body: bytes | None = None) -> http.client.HTTPResponse:
        request = urllib.request.Request(self.url + path, body, self._headers)  # noqa: S310  (the user's own)
        try:
            answer: http.client.HTTPResponse = urllib.request.urlopen(request)  # noqa: S310
        except urllib.error.HTTPError as error:
            with error:
                raise Unavailable(
                    _message(error.read()) or f"{self.url} answers {error.code} {error.reason}"
                ) from error
        except OSError as error:
            reason = getattr(error, "reason", error)
            raise Unavailable(f"{self.url} cannot be reached: {reason}. Is `tokenwire serve` running?") from error
        return answer


@dataclass(slots=True)
class Conversation:
    """Turns so far; a reply that was ended early is kept as far as it was shown."""

    server: Server
    model: str
    system: str | None = None
    messages: list[dict[str, str]] = field(default_factory=list)

    def reset(self) -> None:
        """Forget all turns."""
        self.messages.clear()

    def ask(self, text: str) -> Generator[str, None, None]:
        """Yield the reply in pieces. A question that got no reply is forgotten."""
        asked = {"role": "user", "content": text}
        told = [{"role": "system", "content": self.system}] if self.system else []
        body = {"model": self.model, "messages": [*told, *self.messages, asked]}
        said: list[str] = []
        try:
            for chunk in self.server.stream(body):
                if "error" in chunk:
                    raise Unavailable(_message(json.dumps(chunk).encode()) or "The server gave up on the reply.")
                for choice in chunk.get("choices", []):
                    piece = choice.get("delta", {}).get("content")
                    if piece:
                        said.append(piece)
                        yield piece
        finally:
            if said:
                self.messages += [asked, {"role": "assistant", "content": "".join(said)}]


def _message(body: bytes) -> str:
    """Find the message in an error's body, in OpenAI's shape or in FastAPI's."""
    try:
        told = json.loads(body)
    except ValueError:
        return ""
    error = told.get("error", told) if isinstance(told, dict) else {}
    return str((error.get("message") or error.get("detail") or "") if isinstance(error, dict) else error)
