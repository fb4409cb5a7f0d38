"""What is kept of sessions, on real processes: exports that are too large come in pages, and a Redis may fail."""

import json
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx

from tests.ports import free_port
from tests.processes import coordinator, simulated_worker
from tests.redis_server import redis_server

ENABLED = "--enable-trajectories"
WORKER = ("--sim-step-ms", "1", "--sim-prefill-rate", "0", "--sim-max-model-len", "200000")
PATIENT_S = 120.0


def test_an_export_that_is_too_large_comes_in_pages(folder: Path) -> None:
    """The error names the parameters, and the pages have each row once, in JSON as in Parquet."""
    prompt, choices, half = [65] * 199_000, 128, 64
    with ExitStack() as stack:
        _, address = stack.enter_context(simulated_worker(folder, *WORKER, "--sim-max-num-seqs", str(choices)))
        _, url = stack.enter_context(coordinator(folder, [address], ENABLED))
        client = stack.enter_context(httpx.Client(base_url=url, timeout=PATIENT_S))
        body = {"prompt": prompt, "n": choices, "max_tokens": 1}
        assert client.post("/sessions/large/v1/completions", json=body).status_code == 200
        nodes = client.get("/sessions/large").json()["trace_count"]

        for form in ("jsonl", "parquet"):
            refused = client.get("/sessions/large/export", params={"by": "node", "format": form})
            assert refused.status_code == 413
            assert "`limit` and `offset`" in refused.json()["error"]["message"]

        pages = [
            client.get("/sessions/large/export", params={"by": "node", "limit": half, "offset": offset})
            for offset in (0, half)
        ]

    rows = [json.loads(line) for page in pages for line in page.text.splitlines()]
    assert nodes == len(rows) == len({tuple(row["nodes"]) for row in rows}) == choices
    assert all(row["prompt_ids"] == prompt and row["mask"] == [1] for row in rows)


def test_a_redis_that_dies_and_comes_back_loses_no_reply(folder: Path) -> None:
    """Turns without it are counted as lost; the first one after that is stored whole, and later ones go on after it."""
    port = free_port()
    messages: list[dict[str, Any]] = []
    with ExitStack() as stack:
        _, address = stack.enter_context(simulated_worker(folder, *WORKER))
        store = ("--trajectories-store", f"redis://127.0.0.1:{port}")
        running, url = stack.enter_context(coordinator(folder, [address], ENABLED, *store))
        client = stack.enter_context(httpx.Client(base_url=url, timeout=PATIENT_S))
        with redis_server(port):
            _take_turn(client, messages)
            assert len(client.get("/sessions/kept/trajectory").json()["nodes"]) == 1
        _take_turn(client, messages)
        assert client.get("/sessions/kept/trajectory").status_code == 503

        with redis_server(port):
            graph = _recorded_again(client, messages)
            _take_turn(client, messages)
            later = client.get("/sessions/kept/trajectory").json()
        assert "Traceback" not in running.log

    first, second = graph["nodes"][-1], later["nodes"][-1]
    turns = len(messages) // 2
    assert graph["lost"] == later["lost"] == turns - len(later["nodes"])
    assert (len(graph["nodes"]), first["parent"], first["prompt_start"], first["message_start"]) == (1, None, 0, 0)
    assert (second["parent"], second["link"]) == (first["id"], "ids")
    assert second["prompt_start"] == len(first["prompt_ids"]) + len(first["completion_ids"])
    assert len(first["messages"]) + 2 == len(messages) - 1


def test_a_session_at_two_coordinators_is_one_line(folder: Path) -> None:
    """They share a directory: whoever takes a turn, it comes after the one before, and one row has all of them."""
    messages: list[dict[str, Any]] = []
    with ExitStack() as stack:
        _, address = stack.enter_context(simulated_worker(folder, *WORKER))
        clients = []
        for name in ("one", "two"):
            (folder / name).mkdir()
            store = (ENABLED, "--trajectories-store", str(folder / "store"))
            _, url = stack.enter_context(coordinator(folder / name, [address], *store))
            clients.append(stack.enter_context(httpx.Client(base_url=url, timeout=PATIENT_S)))
        for client in (*clients, *clients):
            _take_turn(client, messages)
            client.post("/admin/flush")
        nodes = clients[0].get("/sessions/kept/trajectory").json()["nodes"]
        rows = [json.loads(line) for line in clients[1].get("/sessions/kept/export").text.splitlines()]

    assert [node["parent"] for node in nodes] == [None, *(node["id"] for node in nodes[:-1])]
    (row,) = rows
    assert sum(row["mask"]) == sum(len(node["completion_ids"]) for node in nodes)


def _take_turn(client: httpx.Client, messages: list[dict[str, Any]]) -> None:
    messages.append({"role": "user", "content": f"Turn {len(messages)}."})
    answer = client.post("/sessions/kept/v1/chat/completions", json={"messages": messages, "max_tokens": 8})
    assert answer.status_code == 200
    messages.append(answer.json()["choices"][0]["message"])


def _recorded_again(client: httpx.Client, messages: list[dict[str, Any]]) -> dict[str, Any]:
    """Take turns until one is recorded: the store is not used for a while after an error."""
    deadline = time.monotonic() + PATIENT_S
    while time.monotonic() < deadline:
        _take_turn(client, messages)
        answer = client.get("/sessions/kept/trajectory")
        if answer.status_code == 200:
            graph: dict[str, Any] = answer.json()
            return graph
    raise AssertionError("nothing is recorded")
