"""Token-exact history on all routes that translate to chat, with real clients that send back what they received."""

import re
import time
from abc import ABC, abstractmethod
from typing import Any

import httpx
import pytest
from openai import OpenAI

from tests.e2e.scripted import REPLIES
from tests.lazily import Lazily
from tests.processes import Service

anthropic = Lazily("anthropic")

MODELS = [*REPLIES, "sim"]
NAMES = ("get_weather", "get_time")
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}


class Talk(ABC):
    """One conversation on one route, under its own id."""

    def __init__(self, service: Service, model: str, conversation: str) -> None:
        self.url = service.url
        self.model = model
        self.headers = {"X-Session-ID": conversation}
        self.turns: list[Any] = [{"role": "user", "content": "Hello."}]
        self.last: list[dict[str, Any]] = []
        """The last reply: its parts as the route has them."""

    def exchange(self, stream: bool, limit: int = 400) -> tuple[int, int, int]:
        """Get the next reply; return the lengths of its prompt, of the reused part, and of the reply."""
        tokens, reused = self._counted()
        prompt, completion = self._exchange(stream, limit)
        deadline = time.monotonic() + 10
        while (counted := self._counted())[0] == tokens:
            assert time.monotonic() < deadline, "the request was not counted"
            time.sleep(0.02)
        assert counted[0] - tokens == prompt
        return prompt, int(counted[1] - reused), completion

    def answer(self) -> None:
        """Send back the result of each call, or a question."""
        self.turns += self._results() or [{"role": "user", "content": "Go on."}]

    def _counted(self) -> tuple[float, float]:
        """Return prompt tokens and reused tokens from one scrape of the metrics."""
        metrics = httpx.get(f"{self.url}/metrics").text
        names = ("prompt_tokens", "prompt_tokens_reused")
        pattern = r'^tokenwire_{}_total{{model="{}"}} (\S+)$'
        found = [re.search(pattern.format(name, re.escape(self.model)), metrics, re.MULTILINE) for name in names]
        tokens, reused = (float(match[1]) if match else 0.0 for match in found)
        return tokens, reused

    @abstractmethod
    def _exchange(self, stream: bool, limit: int) -> tuple[int, int]:
        """Add the reply to the turns; return the tokens of the prompt and of the reply."""

    @abstractmethod
    def _results(self) -> list[Any]:
        """Return turns with the results of the last reply's calls."""

    @abstractmethod
    def reply(self) -> tuple[str, str]:
        """Return the reasoning and the text of the last reply."""

    @abstractmethod
    def join(self) -> None:
        """Make one turn of the last two, of which the second goes on with the first."""


class Chat(Talk):
    """OpenAI's chat completions."""

    def _exchange(self, stream: bool, limit: int) -> tuple[int, int]:
        given: dict[str, Any] = {"model": self.model, "messages": self.turns, "max_tokens": limit}
        if self.turns[-1]["role"] == "assistant":
            given["extra_body"] = {"continue_final_message": True, "add_generation_prompt": False}
        if self.model != "sim":
            given["tools"] = [_function(name) for name in NAMES]
        with OpenAI(base_url=f"{self.url}/v1", api_key="unused", default_headers=self.headers) as client:
            if stream:
                message, usage = _put_together(client.chat.completions.create(**given, **_STREAMED))
            else:
                answer = client.chat.completions.create(**given)
                message, usage = answer.choices[0].message.model_dump(exclude_unset=True), answer.usage
        self.last = [message]
        self.turns.append(message)
        return usage.prompt_tokens, usage.completion_tokens

    def _results(self) -> list[Any]:
        calls = self.last[0].get("tool_calls") or []
        return [{"role": "tool", "tool_call_id": call["id"], "content": "Rain."} for call in calls]

    def reply(self) -> tuple[str, str]:
        return self.last[0].get("reasoning") or "", self.last[0].get("content") or ""

    def join(self) -> None:
        begun, rest = self.turns[-2:]
        self.turns[-2:] = [{**begun, "content": (begun.get("content") or "") + (rest.get("content") or "")}]


class Messages(Talk):
    """Anthropic's messages."""

    def _exchange(self, stream: bool, limit: int) -> tuple[int, int]:
        given: dict[str, Any] = {"model": self.model, "messages": self.turns, "max_tokens": limit}
        if self.model != "sim":
            given["tools"] = [{"name": name, "input_schema": SCHEMA} for name in NAMES]
        counted = {name: value for name, value in given.items() if name != "max_tokens"}
        with anthropic.Anthropic(base_url=self.url, api_key="unused", default_headers=self.headers) as client:
            count = client.messages.count_tokens(**counted).input_tokens
            if stream:
                with client.messages.stream(**given) as events:
                    message = events.get_final_message()
            else:
                message = client.messages.create(**given)
        assert message.usage.input_tokens == count, "count_tokens counts another prompt"
        self.last = [block.model_dump() for block in message.content]
        self.turns.append({"role": "assistant", "content": message.content})
        return message.usage.input_tokens, message.usage.output_tokens

    def _results(self) -> list[Any]:
        used = [block["id"] for block in self.last if block["type"] == "tool_use"]
        results = [{"type": "tool_result", "tool_use_id": id_, "content": "Rain."} for id_ in used]
        return [{"role": "user", "content": results}] if results else []

    def reply(self) -> tuple[str, str]:
        thought, text = ("".join(block.get(kind) or "" for block in self.last) for kind in ("thinking", "text"))
        return thought, text

    def join(self) -> None:
        begun, rest = ([block.model_dump() for block in turn["content"]] for turn in self.turns[-2:])
        begun[-1]["text"] += rest[0]["text"]
        self.turns[-2:] = [{"role": "assistant", "content": [*begun, *rest[1:]]}]


class Responses(Talk):
    """OpenAI's responses."""

    def _exchange(self, stream: bool, limit: int) -> tuple[int, int]:
        given: dict[str, Any] = {"model": self.model, "input": self.turns, "max_output_tokens": limit}
        if self.model != "sim":
            given["tools"] = [
                {"type": "function", "name": name, "parameters": SCHEMA, "strict": False} for name in NAMES
            ]
        with OpenAI(base_url=f"{self.url}/v1", api_key="unused", default_headers=self.headers) as client:
            if stream:
                *_, last = client.responses.create(**given, stream=True)
                answer = last.response
            else:
                answer = client.responses.create(**given)
        self.last = [item.model_dump() for item in answer.output]
        self.turns += self.last
        return answer.usage.input_tokens, answer.usage.output_tokens

    def _results(self) -> list[Any]:
        calls = [item["call_id"] for item in self.last if item["type"] == "function_call"]
        return [{"type": "function_call_output", "call_id": id_, "output": "Rain."} for id_ in calls]

    def reply(self) -> tuple[str, str]:
        parts = [(item["type"], part["text"]) for item in self.last for part in item.get("content") or ()]
        thought, text = ("".join(text for of, text in parts if of == kind) for kind in ("reasoning", "message"))
        return thought, text

    def join(self) -> None:
        """Leave the items as they are: the one that was incomplete is continued by the next."""


_STREAMED: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}


def _function(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": SCHEMA}}


def _put_together(chunks: Any) -> tuple[dict[str, Any], Any]:
    """Return a streamed message as clients assemble it, and its usage."""
    message: dict[str, Any] = {"role": "assistant", "content": "", "reasoning": "", "tool_calls": []}
    usage = None
    for chunk in chunks:
        usage = chunk.usage or usage
        for choice in chunk.choices:
            message["content"] += choice.delta.content or ""
            message["reasoning"] += (choice.delta.model_extra or {}).get("reasoning") or ""
            for call in choice.delta.tool_calls or []:
                if call.id:
                    message["tool_calls"].append({"id": call.id, "type": "function", "function": {"arguments": ""}})
                function = message["tool_calls"][call.index]["function"]
                function["name"] = call.function.name or function.get("name")
                function["arguments"] += call.function.arguments or ""
    return message, usage


@pytest.fixture(params=[Chat, Messages, Responses])
def route(request: pytest.FixtureRequest) -> type[Talk]:
    """Return each route's conversation class."""
    talk: type[Talk] = request.param
    return talk


@pytest.fixture(params=MODELS)
def talk(route: type[Talk], request: pytest.FixtureRequest) -> Talk:
    """Return a conversation with a scripted model, or with a random one without parsers."""
    model = request.param
    service = request.getfixturevalue("service" if model == "sim" else "scripted")
    return route(service, model, request.node.name)


@pytest.mark.parametrize("stream", [False, True], ids=["full", "streamed"])
def test_replies_are_continued_by_their_ids(talk: Talk, stream: bool) -> None:
    """The ids of a parsed reply are in the next prompt, in any route's format."""
    known = 0
    for _ in range(3):
        prompt, reused, completion = talk.exchange(stream)
        assert reused == known
        known = prompt + completion
        talk.answer()


@pytest.mark.parametrize(("stream", "limit"), [(False, 3), *((True, limit) for limit in (3, 14, 60, 70, 75))])
def test_truncated_replies_are_continued_by_their_ids(
    route: type[Talk], scripted: Service, stream: bool, limit: int
) -> None:
    """Cut within their reasoning, whitespace, or a call's arguments."""
    talk = route(scripted, "only-calls", f"{route.__name__} {stream} {limit}")
    prompt, _, completion = talk.exchange(stream, limit)
    talk.answer()

    _, reused, _ = talk.exchange(stream)

    assert reused == prompt + completion


@pytest.mark.parametrize("stream", [False, True], ids=["full", "streamed"])
@pytest.mark.parametrize("limit", [18, 23, 25], ids=["blanks", "words", "half a character"])
def test_truncated_content_is_continued(route: type[Talk], scripted: Service, stream: bool, limit: int) -> None:
    """After its reasoning: the prompt is everything so far, the rest is text, and both are sent back as one."""
    talk = route(scripted, "thinks", f"{route.__name__} {stream} {limit} goes on")
    prompt, _, completion = talk.exchange(stream, limit)
    reasoning, begun = talk.reply()
    assert reasoning == "\nTwo and two.\n"

    following, reused, rest = talk.exchange(stream)

    assert following == reused == prompt + completion
    thought, text = talk.reply()
    assert (thought, (begun + text).strip()) == ("", "It is “four”.")
    talk.join()
    talk.answer()
    assert talk.exchange(stream)[1] == following + rest
