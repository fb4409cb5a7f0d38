"""New requests are split among revisions by their shares, and conversations stay with theirs."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from tokenwire.coordinator.generation.traffic_split import Conversation, TrafficSplit
from tokenwire.protocol.model_revision import ModelRevision
from tokenwire.v1 import inference_pb2 as pb

OLD, NEW, THIRD = (ModelRevision(weights=name) for name in ("old", "new", "third"))
ASKED: list[dict[str, Any]] = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
REPLIED = [*ASKED, {"role": "assistant", "content": "Hello"}, {"role": "user", "content": "And?"}]


class FreeWorkers:
    """Workers with so much free capacity."""

    def __init__(self, **free: int) -> None:
        self.free = {ModelRevision(weights=name): count for name, count in free.items()}
        self.withheld: set[ModelRevision] = set()

    def live_revisions(self, model: str) -> Sequence[ModelRevision]:
        """Return all."""
        return list(self.free)

    def announced(self, model: str) -> Sequence[pb.Model]:
        """Return nothing."""
        return ()

    def plausible_capacity(self, model: str, revision: ModelRevision) -> int:
        """Return what the test set."""
        return self.free[revision]

    def is_withheld(self, model: str, revision: ModelRevision) -> bool:
        """Return what the test set."""
        return revision in self.withheld


def chosen(split: TrafficSplit, count: int, *live: ModelRevision) -> Counter[ModelRevision]:
    """Return how many of so many requests without a conversation each revision gets."""
    return Counter(split.choose("m", live) for _ in range(count))


def test_without_shares_capacity_decides() -> None:
    """As it does among equal workers; of full ones each gets as much as others."""
    workers = FreeWorkers(old=3, new=1)
    split = TrafficSplit(workers, {})
    assert chosen(split, 40, OLD, NEW) == {OLD: 30, NEW: 10}
    workers.free = dict.fromkeys(workers.free, 0)
    assert chosen(split, 40, OLD, NEW) == {OLD: 20, NEW: 20}


def test_a_share_is_kept_from_the_first_requests_on() -> None:
    """Whatever the capacity; the rest is for the others, by theirs."""
    workers = FreeWorkers(old=1, new=1000, third=3)
    split = TrafficSplit(workers, {NEW.digest: 10.0})
    assert chosen(split, 10, OLD, NEW) == {OLD: 9, NEW: 1}
    assert chosen(split, 400, OLD, NEW, THIRD) == {OLD: 90, NEW: 40, THIRD: 270}
    assert split.shares("m", [OLD, NEW, THIRD]) == {OLD: 22.5, NEW: 10.0, THIRD: 67.5}


def test_shares_of_revisions_that_are_not_there_go_to_the_others() -> None:
    """In proportion; a revision with nothing gets all if it is alone."""
    split = TrafficSplit(FreeWorkers(old=1, new=1), {OLD.digest: 20.0, NEW.digest: 20.0, THIRD.digest: 60.0})
    assert chosen(split, 20, OLD, NEW) == {OLD: 10, NEW: 10}
    nothing = TrafficSplit(FreeWorkers(old=1, new=1), {OLD.digest: 0.0, NEW.digest: 0.0})
    assert chosen(nothing, 10, OLD, NEW) == {OLD: 5, NEW: 5}


def test_a_named_conversation_stays_with_its_revision() -> None:
    """As long as that is served."""
    split = TrafficSplit(FreeWorkers(old=1, new=1), {})
    first = {f"c{n}": split.choose("m", [OLD, NEW], Conversation("t", f"c{n}")) for n in range(10)}
    assert set(first.values()) == {OLD, NEW}
    for name, revision in first.items():
        assert split.choose("m", [OLD, NEW], Conversation("t", name)) == revision
        assert split.choose("m", [NEW], Conversation("t", name)) == NEW


def test_a_chat_is_known_by_its_first_question() -> None:
    """Equal questions without an answer are new ones, and go where the share says."""
    split = TrafficSplit(FreeWorkers(old=1, new=1), {NEW.digest: 100.0, OLD.digest: 0.0})
    assert split.choose("m", [OLD, NEW], Conversation("t", messages=ASKED)) == NEW
    assert split.choose("m", [OLD, NEW], Conversation("t", messages=REPLIED)) == NEW
    assert split.choose("m", [OLD, NEW], Conversation("other", messages=REPLIED)) == OLD
    equal = TrafficSplit(FreeWorkers(old=1, new=1), {})
    assert Counter(equal.choose("m", [OLD, NEW], Conversation("t", messages=ASKED)) for _ in range(10)) == {
        OLD: 5,
        NEW: 5,
    }


def test_a_chat_that_began_before_the_rollout_stays_with_the_oldest_revision() -> None:
    """Nothing was recorded of it."""
    split = TrafficSplit(FreeWorkers(old=1, new=1), {NEW.digest: 100.0})
    assert split.choose("m", [OLD, NEW], Conversation("t", "c", REPLIED)) == OLD
    assert split.choose("m", [OLD, NEW], Conversation("t", "c", REPLIED)) == OLD


@pytest.mark.parametrize("messages", [(), ASKED[:1]])
def test_what_has_no_conversation_is_split(messages: list[dict[str, Any]]) -> None:
    """Prompts that are text or ids, and messages without a question."""
    split = TrafficSplit(FreeWorkers(old=1, new=1), {})
    assert Counter(split.choose("m", [OLD, NEW], Conversation("", messages=messages)) for _ in range(10)) == {
        OLD: 5,
        NEW: 5,
    }


def test_a_withheld_revision_gets_nothing_and_then_a_probe_now_and_then() -> None:
    """Also if all others are full; one request of twenty once it may be probed, and its share when it serves again."""
    workers = FreeWorkers(old=30, new=0)
    split = TrafficSplit(workers, {})
    workers.withheld = {NEW}
    assert split.shares("m", [OLD, NEW]) == {OLD: 100, NEW: 0}
    assert chosen(split, 40, OLD, NEW) == {OLD: 40}
    workers.free = {OLD: 0, NEW: 0}
    assert chosen(split, 40, OLD, NEW) == {OLD: 40}

    workers.free = {OLD: 0, NEW: 1}
    assert chosen(split, 40, OLD, NEW) == {OLD: 38, NEW: 2}

    workers.free, workers.withheld = {OLD: 30, NEW: 30}, set()
    assert chosen(split, 40, OLD, NEW) == {OLD: 20, NEW: 20}


def test_a_share_of_its_own_is_kept_by_a_withheld_revision() -> None:
    """Who gave it is to take it; and one that is alone, or all, have all requests."""
    workers = FreeWorkers(old=1, new=1)
    workers.withheld = {NEW}
    assert chosen(TrafficSplit(workers, {NEW.digest: 10.0}), 10, OLD, NEW) == {OLD: 9, NEW: 1}
    assert chosen(TrafficSplit(workers, {OLD.digest: 0.0}), 10, OLD, NEW) == {OLD: 10}
    workers.withheld = {OLD, NEW}
    assert chosen(TrafficSplit(workers, {}), 10, OLD, NEW) == {OLD: 5, NEW: 5}


def test_conversations_leave_a_revision_that_is_withheld() -> None:
    """Those that it has, and those that began before the rollout, which are for the oldest one that serves."""
    workers = FreeWorkers(old=1, new=1)
    split = TrafficSplit(workers, {})
    for name in range(10):
        split.choose("m", [OLD, NEW], Conversation("t", f"c{name}"))
    workers.withheld = {OLD}
    workers.free[OLD] = 0
    assert {split.choose("m", [OLD, NEW], Conversation("t", f"c{name}")) for name in range(10)} == {NEW}
    assert split.choose("m", [OLD, NEW], Conversation("t", "another", REPLIED)) == NEW
