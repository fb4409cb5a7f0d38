"""What workers announce that they cannot do, as clients see it: other workers do it, or the error says so."""

from pathlib import Path

import httpx

from tests.processes import coordinator, simulated_worker, wait_routable

_PLAIN = {"prompt": "Hello", "max_tokens": 3}
_SEEDED = {**_PLAIN, "seed": 5, "temperature": 1}


def test_requests_go_to_workers_that_can(tmp_path: Path) -> None:
    """A seed that only one of two workers takes; the log-probabilities of a prompt, which neither has: a 400."""
    scores = ("--sim-unsupported", "prompt_logprobs")
    with (
        simulated_worker(tmp_path, *scores, "--sim-unsupported", "seed", name="older") as (_, older),
        simulated_worker(tmp_path, *scores, name="newer") as (_, newer),
        coordinator(tmp_path, [older, newer], "--enable-debug-headers", "--routing", "round-robin") as (_, url),
        httpx.Client(base_url=url) as client,
    ):
        wait_routable(url, 2)
        plain, seeded = ([client.post("/v1/completions", json=body) for _ in range(4)] for body in (_PLAIN, _SEEDED))
        scored = client.post("/v1/completions", json={**_PLAIN, "prompt_logprobs": 1})

    assert {reply.headers["x-tokenwire-worker"].partition(";")[0] for reply in plain} == {older, newer}
    assert {reply.headers["x-tokenwire-worker"].partition(";")[0] for reply in seeded} == {newer}
    error = scored.json()["error"]
    assert (scored.status_code, error["param"]) == (400, "prompt_logprobs")
    assert "supports prompt_logprobs" in error["message"]
