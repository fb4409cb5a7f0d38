"""Real processes that are discovered while a coordinator runs."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx

from tests.processes import coordinator, simulated_worker, wait_healthy

CHAT = "/v1/chat/completions"
BODY = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 200, "ignore_eos": True}


def test_workers_change_under_a_running_stream(folder: Path) -> None:
    """From no worker to one, and to another: the stream on the first is completed, the next is on the second."""
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
        with client.stream("POST", url + CHAT, json={**BODY, "stream": True}) as running:
            lines = running.iter_lines()
            next(lines)

            listed.write_text(f"{second}\n")

            process.wait_for(rf"worker {second}: .* ready")
            assert client.post(url + CHAT, json={**BODY, "max_tokens": 2}).status_code == 200
            assert list(lines)[-2:] == ["data: [DONE]", ""]
        process.wait_for(f"worker {first} removed")


def names(url: str) -> list[str]:
    """Return the ids of the listed models."""
    return [card["id"] for card in httpx.get(f"{url}/v1/models").json()["data"]]


def test_models_are_added_and_removed(folder: Path) -> None:
    """Each name has its worker; without one it is a 503 for a while, then a 404; it returns with a worker."""
    listed = folder / "workers"

    def named(name: str) -> tuple[str, ...]:
        return ("--sim-step-ms", "1", "--served-model-name", name)

    with (
        simulated_worker(folder, *named("red"), name="one") as (_, red),
        simulated_worker(folder, *named("blue"), name="two") as (_, blue),
        coordinator(folder, [f"file:{listed}", blue], "--model-linger", "2", "--max-queue", "0", ready=False) as (
            process,
            url,
        ),
    ):

        def post_chat(model: str) -> httpx.Response:
            return httpx.post(url + CHAT, json={**BODY, "max_tokens": 2, "model": model})

        listed.write_text(red)
        process.wait_for(f"worker {red}: .* ready")
        wait_healthy(url, process)
        assert sorted(names(url)) == ["blue", "red"]
        assert post_chat("red").json()["model"] == "red"
        assert post_chat("blue").json()["model"] == "blue"

        listed.write_text("")
        process.wait_for(f"worker {red} removed")
        gone = post_chat("red")
        assert gone.status_code == 503
        assert int(gone.headers["retry-after"]) >= 1
        assert sorted(names(url)) == ["blue", "red"]
        assert httpx.get(f"{url}/health").status_code == 200

        wait_for(lambda: post_chat("red").status_code == 404)
        assert names(url) == ["blue"]

        listed.write_text(red)
        wait_for(lambda: post_chat("red").status_code == 200)
        assert sorted(names(url)) == ["blue", "red"]


def test_requests_wait_for_an_expected_model(folder: Path) -> None:
    """Before its first worker it is listed and in the metrics; its requests are served once a worker is there."""
    listed = folder / "workers"
    listed.write_text("")
    waiting = 'tokenwire_queue_sequences{model="red"} 1.0'
    with (
        coordinator(folder, [f"file:{listed}"], "--expect-model", "red", ready=False) as (_, url),
        simulated_worker(folder, "--served-model-name", "red") as (_, red),
        ThreadPoolExecutor() as threads,
    ):
        body = {**BODY, "max_tokens": 2, "model": "red"}
        paths = (CHAT, "/v1/messages", "/tokenize")
        requests = [threads.submit(httpx.post, url + path, json=body, timeout=60) for path in paths]
        wait_for(lambda: waiting.replace("1.0", "3.0") in httpx.get(f"{url}/metrics").text)
        assert names(url) == ["red"]
        assert httpx.post(url + CHAT, json={**body, "model": "blue"}).status_code == 503

        listed.write_text(red)

        assert [answer.result().status_code for answer in requests] == [200] * 3
        assert waiting.replace("1.0", "0.0") in httpx.get(f"{url}/metrics").text


def wait_for(holds: Callable[[], bool]) -> None:
    """Poll until a condition without an event holds."""
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)
