"""Sleep and wake up, levels 0 to 2: memory freed, time of each, and replies as before.

A request that is sent meanwhile waits and is answered after; a stream that is frozen by mode keep goes on. The second
model, of about 8B random parameters, shows what both cost at a size that is served.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import httpx

from gpu.completions import GreedyStream, greedy, post, refusal
from gpu.kit import Kit
from gpu.machine import nvidia_smi
from gpu.models import KitModel
from gpu.parts import Parts, timed
from gpu.servers import StartedServers, started_together
from gpu.step import Skipped

NAME = "sleep"
LIMIT_S = 120

_PROMPT = "Once upon a time there was a fisherman who"
_TOKENS = 32
_BEGUN = 10
_UNANSWERED_S = 1.0
_CACHE_GIB = {"small": 8, "large": 24}

Wake = Callable[[str, dict[str, float]], None]
"""Wakes an engine; adds the seconds of its stages."""


def run(kit: Kit) -> dict[str, Any]:
    """Put engines to sleep and wake them."""
    models = {"small": kit.model, **({"large": kit.large} if kit.on_cuda else {})}
    starts = {name: partial(_worker, kit, model, name) for name, model in models.items()}
    parts = Parts(kit.out)
    with started_together(starts, at_once=len(starts)) as servers:
        with parts.part("start") as found:
            found |= {name: servers[name].ready_s for name in starts}
        with parts.part("small"):
            _small(kit, servers, parts)
        with parts.part("large, level 1") as found:
            _large(kit, servers, found)
    return {"parts": parts.results}


def _worker(kit: Kit, model: KitModel, name: str) -> Any:
    engine = kit.engine_arguments(share=0.4 if name == "small" else 0.5)
    if kit.on_cuda:
        cache = str(_CACHE_GIB[name] * 2**30)
        engine += ["--enable-sleep-mode", "--kv-cache-memory-bytes", cache, "--enforce-eager"]
    return kit.tokenwire_worker(model, engine=engine, name=name)


def _small(kit: Kit, servers: StartedServers, parts: Parts) -> None:
    with kit.coordinator([servers["small"]], options=["--enable-rl"], name="coordinator-small") as coordinator:
        levels = (0, 1, 2) if kit.on_cuda else (0,)
        for level in levels:
            with parts.part(f"level {level}") as found:
                wake = _wake_in_two if level == 2 else _wake_up
                _cycle(kit, coordinator.address, kit.model.name, level, wake, found)
        with parts.part("not enabled") as found:
            if kit.on_cuda:
                raise Skipped("it is enabled here")
            refused = refusal(coordinator.address, "/sleep", {"level": 1})
            found["refused"] = str(refused)
            assert refused.status == 501


def _large(kit: Kit, servers: StartedServers, found: dict[str, Any]) -> None:
    if not kit.on_cuda:
        raise Skipped("needs a GPU")
    with kit.coordinator([servers["large"]], options=["--enable-rl"], name="coordinator-large") as coordinator:
        _cycle(kit, coordinator.address, kit.large.name, 1, _wake_up, found)


def _cycle(kit: Kit, url: str, model: str, level: int, wake: Wake, found: dict[str, Any]) -> None:
    """Sleep and wake up once, with a stream that is frozen and a request that is sent meanwhile."""
    before = greedy(url, model, _PROMPT, _TOKENS).token_ids
    tokens = 120 if kit.on_cuda else 60
    undisturbed = greedy(url, model, _PROMPT, tokens).token_ids
    frozen = GreedyStream(url, model, _PROMPT, tokens, cache_salt="frozen")
    assert frozen.wait_tokens(_BEGUN), "the stream did not begin"
    memory = found["memory used"] = {"before": nvidia_smi("memory.used")}
    seconds = found["stages, s"] = {}
    with timed(seconds, "sleep"):
        post(url, "/sleep", {"level": level, "mode": "keep"})
    memory["asleep"] = nvidia_smi("memory.used")
    found["stream froze at"] = len(frozen.reply.token_ids)
    assert _is_sleeping(url), "/is_sleeping is false"
    waiting = GreedyStream(url, model, _PROMPT, _TOKENS, cache_salt="waiting")
    assert not waiting.wait_tokens(1, _UNANSWERED_S), "a request was answered during sleep"
    with timed(seconds, "wake up"):
        wake(url, seconds)
    with timed(seconds, "first token after"):
        assert waiting.wait_tokens(1), "the request was not answered after sleep"
    memory["awake"] = nvidia_smi("memory.used")
    assert not _is_sleeping(url), "/is_sleeping is true"
    held, stream, after = waiting.result(), frozen.result(), greedy(url, model, _PROMPT, _TOKENS).token_ids
    found["frozen stream"] = {"tokens": len(stream.token_ids), "as undisturbed": stream.token_ids == undisturbed}
    found["ids as before"] = after == before
    found["ids of the request sent during sleep as before"] = held.token_ids == before
    assert (stream.finish_reason, len(stream.token_ids)) == ("length", tokens), f"the stream was lost: {stream}"
    assert after == before, f"the ids were {before} and are {after}"
    assert len(held.token_ids) == _TOKENS, f"the request sent during sleep ended early: {held}"


def _wake_up(url: str, seconds: dict[str, float]) -> None:
    post(url, "/wake_up")


def _wake_in_two(url: str, seconds: dict[str, float]) -> None:
    """Wake the memory of the weights, load them, wake the cache's: level 2 keeps no copy of them."""
    with timed(seconds, "wake weights"):
        post(url, "/wake_up", {"tags": ["weights"]})
    with timed(seconds, "reload weights"):
        post(url, "/reload_weights")
    with timed(seconds, "wake cache"):
        post(url, "/wake_up", {"tags": ["kv_cache"]})


def _is_sleeping(url: str) -> bool:
    return bool(httpx.get(f"{url}/is_sleeping", timeout=30).json()["is_sleeping"])
