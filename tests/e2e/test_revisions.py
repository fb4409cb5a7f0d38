"""Workers of one name with other weights, as real processes: one is killed while both have streams."""

import asyncio
import signal
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.faults.client import ClientRecord, read_stream
from tests.processes import Service, coordinator, simulated_worker

STREAMS = 16
BODY: dict[str, Any] = {
    "prompt": "Tell me a story.",
    "max_tokens": 150,
    "temperature": 0,
    "stream": True,
    "return_token_ids": True,
}


async def outputs_of(service: Service, count: int) -> list[list[int]]:
    """Return the ids of so many undisturbed streams."""
    streams = [ClientRecord(BODY) for _ in range(count)]
    await asyncio.gather(*(read_stream(service.url, stream) for stream in streams))
    assert not any(stream.problem for stream in streams)
    return [stream.token_ids for stream in streams]


@pytest.mark.parametrize("other_seed", ["0", "1"], ids=["equal", "different"])
async def test_a_stream_goes_on_only_with_the_weights_that_began_it(tmp_path: Path, other_seed: str) -> None:
    """With equal ones all streams are those of an undisturbed run; with others, those of the killed worker end.

    Their clients get an error event, which says what began the reply and what else is served.
    """
    with ExitStack() as stack:
        workers = [
            stack.enter_context(simulated_worker(tmp_path, "--sim-step-ms", "20", "--sim-seed", seed, name=seed + name))
            for seed, name in (("0", "first"), (other_seed, "second"))
        ]
        addresses = [address for _, address in workers]
        process, url = stack.enter_context(coordinator(tmp_path, addresses, "--queue-timeout", "1"))
        await asyncio.to_thread(process.wait_for, r"(?s)revision .*revision ")
        service = Service(process, url, [worker for worker, _ in workers], addresses)
        undisturbed = {tuple(output) for output in await outputs_of(service, STREAMS)}
        streams = [ClientRecord(BODY) for _ in range(STREAMS)]
        reading = [asyncio.create_task(read_stream(url, stream)) for stream in streams]
        await asyncio.gather(*(stream.began.wait() for stream in streams))
        assert service.server_info(0).open_slots > 0
        workers[0][0].signal(signal.SIGKILL)
        await asyncio.gather(*reading)

    ended = [stream for stream in streams if stream.problem]
    assert len(undisturbed) == 1 + int(other_seed)
    assert bool(ended) is (other_seed != "0")
    assert {tuple(stream.token_ids) for stream in streams if not stream.problem} <= undisturbed
    for stream in ended:
        assert "which would continue the reply differently" in stream.problem
        assert any(whole[: len(stream.token_ids)] == tuple(stream.token_ids) for whole in undisturbed)


async def test_a_rollout_is_shown_and_gets_its_share(tmp_path: Path) -> None:
    """On the status page and in metrics; the share is one of new requests, and conversations stay."""
    with ExitStack() as stack:
        workers = [
            stack.enter_context(simulated_worker(tmp_path, "--sim-seed", seed, name=f"worker-{seed}")) for seed in "01"
        ]
        old, new = (process.wait_for(r"revision (\w+)")[1] for process, _ in workers)
        addresses = [address for _, address in workers]
        process, url = stack.enter_context(coordinator(tmp_path, addresses, "--revision-share", f"{new}=20"))
        await asyncio.to_thread(process.wait_for, r"(?s)revision .*revision ")
        async with httpx.AsyncClient(base_url=url, timeout=30) as client:
            for number in range(20):
                chat = {"messages": [{"role": "user", "content": f"Hello {number}"}], "max_tokens": 1}
                assert (await client.post("/v1/chat/completions", json=chat)).status_code == 200
            (snapshot,) = (await client.get("/status.json")).json()["processes"]
            metrics = (await client.get("/metrics")).text
            replies = set()
            for _ in range(6):
                named = {**BODY, "stream": False, "max_tokens": 20, "session_id": "conversation"}
                reply = (await client.post("/v1/completions", json=named)).json()
                replies.add(reply["choices"][0]["text"])

    assert snapshot["models"][0]["revisions"] == {old: 80.0, new: 20.0}
    assert {worker["revision"] for worker in snapshot["workers"]} == {old, new}
    assert f'tokenwire_revision_sequences_total{{model="simulated",revision="{old}"}} 16.0' in metrics
    assert f'tokenwire_revision_sequences_total{{model="simulated",revision="{new}"}} 4.0' in metrics
    assert len(replies) == 1
