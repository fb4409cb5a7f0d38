"""Bar: the kit's client sees a stream that is frozen, and what became of it; errors are errors."""

from pathlib import Path

import pytest

from gpu.completions import GreedyStream, Refused, full_completion, greedy, post, refusal
from tests.processes import simulated_service


def test_streams_are_read_while_they_are_frozen_and_go_on(tmp_path: Path) -> None:
    """A paused stream gives no token more until it is resumed; equal prompts have equal ids, streamed or not."""
    with simulated_service(tmp_path, coordinator_options=["--enable-rl"]) as service:
        url, model = service.url, "simulated"
        expected = full_completion(url, model, "A prompt", 40)["choices"][0]["token_ids"]
        stream = GreedyStream(url, model, "A prompt", 40)
        assert stream.wait_tokens(1)
        post(url, "/pause?mode=keep&clear_cache=false")
        waiting = GreedyStream(url, model, "Another", 4)
        assert not waiting.wait_tokens(1, timeout_s=0.3)
        post(url, "/resume")

        reply = stream.result()
        assert (reply.token_ids, reply.finish_reason) == (expected, "length")
        assert reply.weight_versions
        assert len(waiting.result().token_ids) == 4
        assert greedy(url, model, "A prompt", 40).token_ids == expected

        assert refusal(url, "/update_weights", {}).status == 400
        with pytest.raises(Refused, match="404"):
            full_completion(url, "missing", "A prompt", 1)
        with pytest.raises(RuntimeError, match="404"):
            greedy(url, "missing", "A prompt", 1)
        with pytest.raises(AssertionError, match="was not refused"):
            refusal(url, "/resume", {})
