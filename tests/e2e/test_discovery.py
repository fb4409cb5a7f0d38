"""Real processes that are found while a coordinator runs."""

from pathlib import Path

import httpx

from tests.processes import coordinator, simulated_worker, wait_healthy

CHAT = "/v1/chat/completions"
ASKED = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 200, "ignore_eos": True}


def test_workers_change_under_a_running_stream(folder: Path) -> None:
    """From no worker to one, and on to another: the stream on the first runs to its end, the next is on the second."""
    listed = folder / "workers"
    listed.write_text("# nobody yet\n")
    with (
        simulated_worker(folder, "--sim-step-ms", "10", name="one") as (_, first),
        simulated_worker(folder, name="two") as (_, second),
        coordinator(folder, [f"file:{listed}"], ready=False) as (process, url),
        httpx.Client(timeout=60) as client,
    ):
        process.wait_for("has no workers")
        assert client.get(f"{url}/health").status_code == 503
        listed.write_text(f"{first}\n")
        wait_healthy(url, process)
        with client.stream("POST", url + CHAT, json={**ASKED, "stream": True}) as running:
            lines = running.iter_lines()
            next(lines)

            listed.write_text(f"{second}\n")

            process.wait_for(rf"worker {second}: .* ready")
            assert client.post(url + CHAT, json={**ASKED, "max_tokens": 2}).status_code == 200
            assert list(lines)[-2:] == ["data: [DONE]", ""]
        process.wait_for(f"worker {first} was left")
