"""The last prompts of sessions are kept within bounds."""

from tests.clock import Clock
from tokenwire.coordinator.history.prefix_watch import Branch, PrefixWatch
from tokenwire.coordinator.history.prompt_digest import digest_prompt
from tokenwire.coordinator.history.request_history import SentReplies


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
