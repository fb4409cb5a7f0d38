"""What is true of trajectories, by what clients got and by the workers' own logs."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.e2e.trajectory_sessions import ScriptedSession


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
            content = node["message"]["content"]
            assert (content.strip() if sent.is_summary else content) == sent.text
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
