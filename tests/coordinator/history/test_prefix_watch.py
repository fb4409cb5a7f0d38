"""The last prompts of sessions are kept within bounds."""

from types import SimpleNamespace
from typing import Any

import pytest

from tests.clock import Clock
from tokenwire.coordinator.history.prefix_watch import Branch, PrefixWatch, WatchedPrompt
from tokenwire.coordinator.history.prompt_digest import digest_prompt
from tokenwire.coordinator.history.request_history import SentReplies
from tokenwire.coordinator.observability.record import PrefixCause, RequestRecord
from tokenwire.coordinator.types import ServedModel, TokenPrompt
from tokenwire.v1 import inference_pb2 as pb


def branch_of(text: str) -> Branch:
    """Return a prompt of one message."""
    return Branch(digest_prompt([{"role": "user", "content": text}], "string", []), "m", None)


def test_a_session_keeps_a_few_branches() -> None:
    """A prompt replaces the one that it continues; of others the oldest goes."""
    watch, branches = PrefixWatch(), [branch_of(str(number)) for number in range(6)]
    watch.put("s", branches[0], None)
    watch.put("s", branches[1], branches[0])
    for branch in branches[2:]:
        watch.put("s", branch, None)

    assert [*watch.branches("s")] == branches[2:]
    assert [*watch.branches("other")] == []


def test_the_least_recent_session_goes_first() -> None:
    """Memory is bounded over all sessions, and counted."""
    size = PrefixWatch()
    size.put(0, branch_of("x" * 1000), None)
    watch = PrefixWatch(max_bytes=3 * size.size)
    for number in range(5):
        watch.put(number, branch_of("x" * 1000), None)

    assert len(watch) == 3
    assert not watch.branches(0)
    assert watch.size == 3 * size.size


def test_keys_of_replies_are_counted() -> None:
    """A request may have many choices."""
    sizes = []
    for choices in (1, 100):
        watch, branch = PrefixWatch(), branch_of("a")
        branch.sent = SentReplies(b"", choices)
        watch.put("s", branch, None)
        sizes.append(watch.size)

    assert sizes[1] - sizes[0] > 99 * 2 * 16


def test_sessions_expire() -> None:
    """What was not continued for a while is forgotten."""
    clock = Clock()
    watch = PrefixWatch(ttl_s=10, clock=clock)
    watch.put("s", branch_of("a"), None)
    clock.now += 11

    assert not watch.branches("s")
    watch.put("t", branch_of("a"), None)
    assert len(watch) == 1


def cause_of(watch: PrefixWatch, model: ServedModel, block: int, length: int, cached: int) -> PrefixCause | None:
    """Send a prompt of a length to a worker with such blocks, which has so many of its tokens."""
    ids = [7 * at % 101 for at in range(length)]
    serving, capabilities = pb.ServingState(), pb.EngineCapabilities(cache_block_tokens=block)
    worker: Any = SimpleNamespace(instance_id="w", serving=serving, capabilities=capabilities)
    record = RequestRecord(session=worker)
    watched = WatchedPrompt(watch, record, "", "s", TokenPrompt(ids))
    watched.compare(model, ids, None, None)
    watched.prefilled(cached)
    return None if record.divergence is None else record.divergence.cause


@pytest.mark.parametrize("block", [16, 64, 128, 528])
@pytest.mark.parametrize("blocks", [1, 2, 4, 7])
def test_what_a_cache_never_has_is_not_missed(model: ServedModel, block: int, blocks: int) -> None:
    """The last token is computed anew: of a prompt that ends with a block, that is the whole block."""
    watch, length = PrefixWatch(), block * blocks

    assert cause_of(watch, model, block, length, 0) is None
    assert cause_of(watch, model, block, length, length - block) == "none"
    assert cause_of(watch, model, block, length + 1, length) == "none"
    assert cause_of(watch, model, block, length + block - 1, length) == "none"
    assert cause_of(watch, model, block, length + 10 * block, length) == "none"
    assert cause_of(watch, model, block, length + 10 * block, length) == "evicted"


def test_blocks_of_a_size_that_is_not_known_are_small(model: ServedModel) -> None:
    """As those of most engines are."""
    watch = PrefixWatch()
    cause_of(watch, model, 0, 512, 0)

    assert cause_of(watch, model, 0, 512, 512 - 64) == "none"
    assert cause_of(watch, model, 0, 512, 512 - 128) == "evicted"
