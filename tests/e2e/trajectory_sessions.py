"""Scripted sessions of three dialects: with branches, helpers, compaction, retries and cancels."""

import asyncio
import json
import random
from base64 import urlsafe_b64decode
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import httpx

Dialect = Literal["chat", "responses", "messages"]
DIALECTS: tuple[Dialect, ...] = ("chat", "responses", "messages")
PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "messages": "/v1/messages"}
KINDS = ("goes on", "goes on", "branch", "helper", "compaction", "cancel", "retry")
"""What a turn of a session may be, as often as chance has it."""
_SUMMARY = "tokenwire.1."
"""What the content of a compaction item begins with; base64 of a digest and the summary follows."""
OPTIONS: tuple[dict[str, Any], ...] = ({}, {"temperature": 0}, {"seed": 7}, {"seed": 7, "frequency_penalty": 0.5})
"""The last one is generated again from its start, should it lose its worker."""


@dataclass(frozen=True)
class State:
    """A conversation so far, and the request whose reply it ends with."""

    messages: tuple[tuple[str, str], ...]
    """Role and text of each; a compaction item has its type and its content."""
    last: str | None = None

    def said(self, role: str, text: str) -> "State":
        """Return the conversation with one more message."""
        return replace(self, messages=(*self.messages, (role, text)))


@dataclass
class SentRequest:
    """A request: after which one, and what its client got."""

    request_id: str
    after: str | None
    text: str = ""
    tokens: int | None = None
    """None: the client left before the end."""
    is_summary: bool = False
    """Whether the text is a summary, which is kept without white space around it."""


@dataclass
class ScriptedSession:
    """One session with a dialect, whose course a seed decides."""

    id: str
    dialect: Dialect
    seed: int
    turns: int = 5
    sent: list[SentRequest] = field(default_factory=list)
    kinds: Counter[str] = field(default_factory=Counter)
    """How often it did what."""

    async def run(self, client: httpx.AsyncClient) -> None:
        """Send all of its requests."""
        chance = random.Random(self.seed)
        state = first = State((("user", f"Begin {self.id}."),))
        states = [first]
        for turn in range(self.turns):
            kind = chance.choice(KINDS)
            self.kinds[kind] += 1
            if kind == "branch":
                state = chance.choice(states)
            elif kind == "compaction":
                state = await self._compacted(client, chance, state)
            elif kind == "helper":
                helper = State((("user", f"Help {self.id} with {turn}."),))
                await self._turn(client, chance, helper)
            elif kind == "cancel":
                await self._turn(client, chance, state, cancels=True)
            elif kind == "retry":
                await self._turn(client, chance, state)
            sent = await self._turn(client, chance, state)
            states.append(state)
            state = replace(state.said("assistant", sent.text), last=sent.request_id).said("user", f"Turn {turn}.")

    async def _compacted(self, client: httpx.AsyncClient, chance: random.Random, state: State) -> State:
        """Let the model write a summary and begin again with it, as agents do, or let the server do it."""
        if self.dialect == "responses" and chance.random() < 0.5:
            return await self._compacted_by_route(client, state)
        sent = await self._turn(client, chance, state.said("user", "Write a summary."))
        return State((("user", f"A summary of {self.id}: {sent.text}"),))

    async def _compacted_by_route(self, client: httpx.AsyncClient, state: State) -> State:
        sent = SentRequest(f"{self.id}-{len(self.sent)}", state.last, is_summary=True)
        self.sent.append(sent)
        self.kinds["/v1/responses/compact"] += 1
        body = {"model": "sim", "input": _items(state), "min_tokens": 5}
        url, headers = f"/sessions/{self.id}{PATHS[self.dialect]}/compact", {"X-Request-Id": sent.request_id}
        response = await client.post(url, json=body, headers=headers)
        assert response.status_code == 200, response.text
        compacted = response.json()
        *messages, item = compacted["output"]
        content, sent.tokens = item["encrypted_content"], compacted["usage"]["output_tokens"]
        sent.text = urlsafe_b64decode(content.removeprefix(_SUMMARY))[8:].decode()
        kept = [("user", message["content"][0]["text"]) for message in messages]
        return State((*kept, ("compaction", content), ("user", "Go on.")))

    async def _turn(
        self, client: httpx.AsyncClient, chance: random.Random, state: State, cancels: bool = False
    ) -> SentRequest:
        sent = SentRequest(f"{self.id}-{len(self.sent)}", state.last)
        self.sent.append(sent)
        most = 400 if cancels else chance.randint(3, 40)
        body = dialect_body(self.dialect, state, most, chance.choice(OPTIONS))
        headers = {"X-Request-Id": sent.request_id}
        url = f"/sessions/{self.id}{PATHS[self.dialect]}"
        if not cancels and chance.random() < 0.4:
            response = await client.post(url, json=body, headers=headers)
            assert response.status_code == 200, response.text
            sent.text, sent.tokens = text_of_reply(self.dialect, response.json())
            return sent
        body["stream"] = True
        if self.dialect == "chat":
            body["stream_options"] = {"include_usage": True}
        async with client.stream("POST", url, json=body, headers=headers) as response:
            assert response.status_code == 200, await response.aread()
            deltas = 0
            async for event in _events(response):
                text, tokens = text_of_event(self.dialect, event)
                sent.text += text
                sent.tokens = tokens if tokens is not None else sent.tokens
                deltas += bool(text)
                if cancels and deltas == 5:
                    break
        return sent


def _items(state: State) -> list[dict[str, Any]]:
    """Return a conversation as input of a response."""
    return [
        {"type": role, "encrypted_content": text} if role == "compaction" else {"role": role, "content": text}
        for role, text in state.messages
    ]


def dialect_body(dialect: Dialect, state: State, most: int, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return a request's body."""
    messages = [{"role": role, "content": text} for role, text in state.messages]
    match dialect:
        case "chat":
            return {"model": "sim", "messages": messages, "max_tokens": most, **options}
        case "responses":
            return {"model": "sim", "input": _items(state), "max_output_tokens": most, **options}
    return {"model": "sim", "messages": messages, "max_tokens": most, **options}


def text_of_reply(dialect: Dialect, body: Mapping[str, Any]) -> tuple[str, int]:
    """Return the text of a complete reply, and its number of tokens."""
    match dialect:
        case "chat":
            return body["choices"][0]["message"]["content"], body["usage"]["completion_tokens"]
        case "responses":
            return body["output"][0]["content"][0]["text"], body["usage"]["output_tokens"]
    return body["content"][0]["text"] if body["content"] else "", body["usage"]["output_tokens"]


def text_of_event(dialect: Dialect, event: Mapping[str, Any]) -> tuple[str, int | None]:
    """Return the text of an event, and at the end the number of tokens."""
    match dialect:
        case "chat":
            text = event["choices"][0]["delta"].get("content") or "" if event["choices"] else ""
            return text, event["usage"]["completion_tokens"] if event.get("usage") else None
        case "responses":
            ended = event.get("response", {}).get("usage") if event["type"] != "response.created" else None
            text = event["delta"] if event["type"] == "response.output_text.delta" else ""
            return text, ended["output_tokens"] if ended else None
    text = event["delta"].get("text", "") if event["type"] == "content_block_delta" else ""
    return text, event["usage"]["output_tokens"] if event["type"] == "message_delta" else None


async def _events(response: httpx.Response) -> AsyncIterator[Mapping[str, Any]]:
    async for line in response.aiter_lines():
        if line.startswith("data: {"):
            event = json.loads(line[6:])
            assert "error" not in event or event["error"] is None, event
            yield event


async def run_all(
    url: str, sessions: Sequence[ScriptedSession], halfway: Callable[[], None], at_once: int = 16
) -> None:
    """Run sessions, some at a time; a thread calls `halfway` while others of them are under way."""
    ended = 0
    room = asyncio.Semaphore(at_once)
    limits = httpx.Limits(max_connections=2 * at_once)
    async with httpx.AsyncClient(base_url=url, timeout=60, limits=limits) as client:

        async def run(session: ScriptedSession) -> None:
            nonlocal ended
            async with room:
                await session.run(client)
            ended += 1
            if ended == len(sessions) // 2:
                await asyncio.to_thread(halfway)

        async with asyncio.TaskGroup() as group:
            for session in sessions:
                group.create_task(run(session))
