"""Scripted sessions of three dialects: with branches, helpers, compaction, retries and cancels; and their checks."""

import asyncio
import json
import random
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import httpx

Dialect = Literal["chat", "responses", "messages"]
DIALECTS: tuple[Dialect, ...] = ("chat", "responses", "messages")
PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "messages": "/v1/messages"}
OPTIONS: tuple[dict[str, Any], ...] = ({}, {"temperature": 0}, {"seed": 7}, {"seed": 7, "frequency_penalty": 0.5})
"""The last one is generated again from its start, should it lose its worker."""


@dataclass(frozen=True)
class State:
    """A conversation so far, and the request whose reply it ends with."""

    messages: tuple[tuple[str, str], ...]
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


@dataclass
class ScriptedSession:
    """One session with a dialect, whose course a seed decides."""

    id: str
    dialect: Dialect
    seed: int
    turns: int = 5
    sent: list[SentRequest] = field(default_factory=list)

    async def run(self, client: httpx.AsyncClient) -> None:
        """Send all of its requests."""
        chance = random.Random(self.seed)
        state = first = State((("user", f"Begin {self.id}."),))
        states = [first]
        for turn in range(self.turns):
            kind = chance.choice(("goes on", "goes on", "branch", "helper", "compaction", "cancel", "retry"))
            if kind == "branch":
                state = chance.choice(states)
            elif kind == "compaction":
                state = State((("user", f"What was said in {self.id} until {turn}."),))
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


def dialect_body(dialect: Dialect, state: State, most: int, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return a request's body."""
    messages = [{"role": role, "content": text} for role, text in state.messages]
    match dialect:
        case "chat":
            return {"model": "sim", "messages": messages, "max_tokens": most, **options}
        case "responses":
            return {"model": "sim", "input": messages, "max_output_tokens": most, **options}
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


async def run_all(url: str, sessions: Iterable[ScriptedSession], at_once: int = 16) -> None:
    """Run sessions, some at a time."""
    room = asyncio.Semaphore(at_once)
    limits = httpx.Limits(max_connections=2 * at_once)
    async with httpx.AsyncClient(base_url=url, timeout=60, limits=limits) as client:

        async def run(session: ScriptedSession) -> None:
            async with room:
                await session.run(client)

        async with asyncio.TaskGroup() as group:
            for session in sessions:
                group.create_task(run(session))


@dataclass
class LoggedRun:
    """What one worker sampled for a sequence, by its own log."""

    prompt: list[int]
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)


def runs_of(logs: Iterable[Path]) -> dict[str, list[LoggedRun]]:
    """Return all runs by the ids of their requests."""
    found = defaultdict(list)
    for log in logs:
        runs: dict[int, LoggedRun] = {}
        for line in log.read_text().splitlines():
            entry = json.loads(line)
            if "prompt_ids" in entry:
                runs[entry["run"]] = LoggedRun(entry["prompt_ids"])
                found[entry["request_id"]].append(runs[entry["run"]])
            else:
                runs[entry["run"]].token_ids += entry["token_ids"]
                runs[entry["run"]].logprobs += entry["logprobs"]
    return found


def check_session(
    session: ScriptedSession, graph: Mapping[str, Any], runs: Mapping[str, Sequence[LoggedRun]]
) -> Counter[str]:
    """Check the graph of a session against what its client got and what workers sampled; count kinds of nodes."""
    nodes = {node["id"]: node for node in graph["nodes"]}
    by_request = {_own_id(node["request_id"]): node for node in graph["nodes"]}
    ids = {node["id"]: whole_prompt(nodes, node) + node["completion_ids"] for node in graph["nodes"]}
    own = dict(by_request)
    kinds = Counter[str]()
    assert len(by_request) == len(nodes), "a request has two nodes"
    for sent in session.sent:
        node = by_request.pop(sent.request_id)
        assert node["link"] == (None if sent.after is None else "ids"), sent.request_id
        if sent.after is not None:
            # Or after a reply that begins with the same ids, if the prompt goes on as that did: retries are alike.
            after = ids[own[sent.after]["id"]]
            assert ids[node["parent"]][: len(after)] == after, sent.request_id
        if sent.tokens is None:
            assert node["finish"] in ("abort", "stop"), node["finish"]  # it may end before its client has left
            assert node["message"]["content"].startswith(sent.text)
        else:
            assert len(node["completion_ids"]) == sent.tokens, sent.request_id
            assert node["message"]["content"] == sent.text
        check_sampled(node, whole_prompt(nodes, node), runs[node["request_id"]])
        kinds[node["finish"]] += 1
        kinds["resumed"] += len(runs[node["request_id"]]) > 1
    assert not by_request, f"nobody sent {list(by_request)}"
    return kinds


def _own_id(request_id: str) -> str:
    """Return the id that the client gave to a request."""
    return request_id.partition("-")[2] if request_id.startswith("chatcmpl-") else request_id.partition("_")[2]


def whole_prompt(nodes: Mapping[str, Mapping[str, Any]], node: Mapping[str, Any]) -> list[int]:
    """Return all ids of a node's prompt."""
    before: list[int] = []
    if node["link"] == "ids":
        parent = nodes[node["parent"]]
        before = whole_prompt(nodes, parent) + parent["completion_ids"]
    assert len(before) == node["prompt_start"]
    return before + list(node["prompt_ids"])


def check_sampled(node: Mapping[str, Any], prompt: list[int], runs: Sequence[LoggedRun]) -> None:
    """Check that a worker sampled each token at its place, with its log-probability, and that none is missing."""
    completion, logprobs, place = node["completion_ids"], node["logprobs"], 0
    assert node["mask"] == [1] * len(completion)
    assert len(completion) == len(logprobs)
    for run in runs:
        assert run.prompt[: len(prompt)] == prompt, node["request_id"]
        start = len(run.prompt) - len(prompt)
        assert run.prompt[len(prompt) :] == completion[:start], "it was continued from other tokens"
        assert start <= place, "tokens are missing between two workers"
        for offset in range(place - start, len(run.token_ids)):
            if start + offset == len(completion):
                break
            assert completion[start + offset] == run.token_ids[offset], node["request_id"]
            assert logprobs[start + offset] == run.logprobs[offset], node["request_id"]
            place = start + offset + 1
    assert place == len(completion), "tokens that no worker sampled"
    if node["finish"] in ("stop", "length"):
        last = runs[-1]
        assert len(last.prompt) + len(last.token_ids) == len(prompt) + len(completion), "sampled tokens are missing"


def check_rows(graph: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> None:
    """Check that each token of a session's nodes is marked in exactly one row, at its place."""
    nodes, marked = {node["id"]: node for node in graph["nodes"]}, set()
    for row in rows:
        ids, mask, place = row["prompt_ids"] + row["completion_ids"], [0] * len(row["prompt_ids"]) + row["mask"], 0
        for node_id in row["nodes"]:
            prompt = whole_prompt(nodes, nodes[node_id])
            completion = nodes[node_id]["completion_ids"]
            assert ids[: len(prompt) + len(completion)] == prompt + completion
            assert not any(mask[place : len(prompt)]), "a token of a prompt is marked"
            place = len(prompt) + len(completion)
            assert mask[len(prompt) : place] == [int(node_id not in marked)] * len(completion)
            marked.add(node_id)
        assert place == len(ids)
    assert marked == set(nodes)
    assert sum(sum(row["mask"]) for row in rows) == sum(len(node["completion_ids"]) for node in graph["nodes"])
