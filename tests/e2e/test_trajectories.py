"""Trajectories of real processes: each token that was sampled, exactly once, as the workers' own logs have it."""

import asyncio
import json
import signal
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.scripted import write_model
from tests.e2e.trajectory_checks import check_rows, check_sampled, check_session, runs_of, whole_prompt
from tests.e2e.trajectory_sessions import DIALECTS, KINDS, ScriptedSession, run_all
from tests.processes import coordinator, simulated_worker, wait_routable

ENABLED = "--enable-trajectories"
WORKER = ("--sim-step-ms", "2", "--sim-eos-rate", "0.02", "--served-model-name", "sim")


class RecordedFleet:
    """Workers that log what they sample, and a coordinator that records sessions."""

    def __init__(
        self,
        folder: Path,
        stack: ExitStack,
        *options: str,
        workers: int = 3,
        model: Sequence[str] = WORKER,
    ) -> None:
        """`model` are options of all workers."""
        self.logs = [folder / f"sampled-{number}" for number in range(workers)]
        started = [
            stack.enter_context(simulated_worker(folder, *model, "--sim-token-log", str(log), name=log.name))
            for log in self.logs
        ]
        self.workers = [process for process, _ in started]
        self.addresses = [address for _, address in started]
        self.coordinator, self.url = stack.enter_context(coordinator(folder, self.addresses, ENABLED, *options))
        self.killed = ""
        """The session in whose reply the first worker was killed."""
        wait_routable(self.url, workers)

    def kill_at_work(self) -> None:
        """Kill the first worker in the midst of a reply, of a session of its own."""
        for number in range(100):
            body = {
                "model": "sim",
                "prompt": f"Begin {number}.",
                "max_tokens": 1000,
                "ignore_eos": True,
                "stream": True,
            }
            self.killed = f"killed-{number}"
            url = f"{self.url}/sessions/{self.killed}/v1/completions"
            with httpx.stream("POST", url, json=body, timeout=60) as reply:
                if self.addresses[0] in reply.headers["X-Tokenwire-Worker"]:
                    self.workers[0].signal(signal.SIGKILL)
                    reply.read()
                    return
        raise AssertionError("the first worker got no request")


@pytest.mark.parametrize("count", [24, pytest.param(200, marks=pytest.mark.long)])
def test_each_sampled_token_is_recorded_once(folder: Path, count: int) -> None:
    """In three dialects, with branches, helpers, compaction, retries and cancels, and a worker that is killed."""
    sessions = [ScriptedSession(f"s{number}", DIALECTS[number % 3], number) for number in range(count)]
    kinds = Counter[str]()
    with ExitStack() as stack:
        store = ("--trajectories-store", str(folder / "store"))
        fleet = RecordedFleet(folder, stack, *store, "--enable-debug-headers")
        asyncio.run(run_all(fleet.url, sessions, halfway=fleet.kill_at_work))
        assert fleet.workers[0].wait_exit() == -signal.SIGKILL
        runs = runs_of(fleet.logs)
        with httpx.Client(base_url=fleet.url) as client:
            for session in sessions:
                graph = client.get(f"/sessions/{session.id}/trajectory").json()
                kinds += check_session(session, graph, runs)
                exported = client.get(f"/sessions/{session.id}/export").text.splitlines()
                check_rows(graph, [json.loads(line) for line in exported])
            (node,) = client.get(f"/sessions/{fleet.killed}/trajectory").json()["nodes"]
        check_sampled(node, node["prompt_ids"], runs[node["request_id"]])
        assert len(runs[node["request_id"]]) > 1
        assert "Traceback" not in fleet.coordinator.log, fleet.coordinator.log
    assert {"stop", "length", "abort"} <= {kind for kind, number in kinds.items() if number}, kinds
    for dialect in DIALECTS:
        done = sum((session.kinds for session in sessions if session.dialect == dialect), Counter[str]())
        assert {*KINDS, *(["/v1/responses/compact"] if dialect == "responses" else [])} == {*done}, (dialect, done)


def test_sessions_outlive_their_coordinator(folder: Path) -> None:
    """Killed, with a directory; and the next turn continues the ids of the one before."""
    body: dict[str, Any] = {"model": "sim", "messages": [{"role": "user", "content": "Hi."}], "max_tokens": 9}
    (folder / "second").mkdir()
    with ExitStack() as stack:
        store = ("--trajectories-store", str(folder / "store"))
        fleet = RecordedFleet(folder, stack, *store, workers=1)
        first = httpx.post(f"{fleet.url}/sessions/kept/v1/chat/completions", json=body).json()["choices"][0]["message"]
        before = httpx.get(f"{fleet.url}/sessions/kept/trajectory").json()
        fleet.coordinator.signal(signal.SIGKILL)

        _, url = stack.enter_context(coordinator(folder / "second", fleet.addresses, ENABLED, *store))
        assert httpx.get(f"{url}/sessions/kept/trajectory").json() == before
        body["messages"] += [first, {"role": "user", "content": "More."}]
        httpx.post(f"{url}/sessions/kept/v1/chat/completions", json=body)
        nodes = httpx.get(f"{url}/sessions/kept/trajectory").json()["nodes"]

    assert len(nodes) == 2
    assert nodes[1]["parent"] == nodes[0]["id"]


def test_marks_are_what_the_worker_sampled_also_where_its_ids_were_lost(folder: Path) -> None:
    """Continued from exact ids, the line goes on; rendered anew with other ids, it begins again; no token twice."""
    (folder / "second").mkdir()
    (script := folder / "script.json").write_text(json.dumps([*b"so <think> it "]))  # texts have one token for it
    model = (str(write_model(folder / "model")), *WORKER, "--sim-eos-rate", "0", "--sim-script", str(script))
    messages: list[dict[str, str]] = []
    with ExitStack() as stack:
        store = ("--trajectories-store", str(folder / "store"))
        fleet = RecordedFleet(folder, stack, *store, workers=1, model=model)
        _talk(fleet.url, messages, turns=2)
        assert len(httpx.get(f"{fleet.url}/sessions/lost/trajectory").json()["nodes"]) == 2  # and is written
        fleet.coordinator.signal(signal.SIGKILL)
        _, url = stack.enter_context(coordinator(folder / "second", fleet.addresses, ENABLED, *store))
        _talk(url, messages, turns=2)
        graph = httpx.get(f"{url}/sessions/lost/trajectory").json()
        rows = [json.loads(line) for line in httpx.get(f"{url}/sessions/lost/export").text.splitlines()]
        runs = runs_of(fleet.logs)

    nodes = {node["id"]: node for node in graph["nodes"]}
    assert [node["link"] for node in graph["nodes"]] == [None, "ids", "messages", "ids"]
    assert [node["parent"] for node in graph["nodes"]] == [None, *[*nodes][:3]]
    for node in graph["nodes"]:
        check_sampled(node, whole_prompt(nodes, node), runs[node["request_id"]])
    check_rows(graph, rows)
    sampled = [token for node in graph["nodes"] for token in runs[node["request_id"]][0].token_ids]
    assert [token for row in rows for token, is_marked in _completion_of(row) if is_marked] == sampled
    assert len(sampled) == 4 * 20


def _talk(url: str, messages: list[dict[str, str]], turns: int) -> None:
    """Continue a conversation in its session by some turns."""
    for _ in range(turns):
        messages.append({"role": "user", "content": f"Turn {len(messages)}."})
        body = {"model": "sim", "messages": messages, "max_tokens": 20}
        answer = httpx.post(f"{url}/sessions/lost/v1/chat/completions", json=body)
        messages.append({"role": "assistant", "content": answer.json()["choices"][0]["message"]["content"]})


def _completion_of(row: dict[str, Any]) -> list[tuple[int, int]]:
    """Return the tokens after a row's first prompt, each with its mark."""
    return list(zip(row["completion_ids"], row["mask"], strict=True))
