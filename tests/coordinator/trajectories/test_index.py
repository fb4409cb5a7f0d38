"""A turn is stored as what it adds to an earlier one of its session."""

from array import array

from tests.clock import Clock
from tests.coordinator.trajectories.turns import assistant_message, said_by_user
from tokenwire.coordinator.trajectories.index import IdDigest, KnownEnds, PromptMessages, SessionIndex, SessionIndexes

KEY = ("acme", "s")


def array_of(*token_ids: int) -> "array[int]":
    """Return ids as they are stored."""
    return array("I", token_ids)


def digest_of(*token_ids: int) -> IdDigest:
    """Return the digest of ids."""
    return IdDigest().followed_by(array_of(*token_ids))


def test_the_base_of_a_prompt_is_the_longest_node_that_it_begins_with() -> None:
    """Of equal ones the newest; a node that it only shares a part with is none."""
    index = SessionIndex()
    index.put(digest_of(1, 2), [("a", array_of(3)), ("b", array_of(4))], None)
    index.put(digest_of(1, 2, 3, 5), [("c", array_of(6))], None)
    index.put(digest_of(1, 2), [("d", array_of(3))], None)

    assert index.base_of(array_of(1, 2, 3, 5, 6, 7), IdDigest()) == ("c", 5)
    assert index.base_of(array_of(1, 2, 3, 5), IdDigest()) == ("d", 3)
    assert index.base_of(array_of(1, 2, 4), IdDigest()) == ("b", 3)
    assert index.base_of(array_of(1, 2), IdDigest()) is None
    assert index.base_of(array_of(9), IdDigest()) is None


def test_a_node_of_another_policy_is_no_base() -> None:
    """Neither of another model nor of another adapter, or of one that was loaded anew."""
    index = SessionIndex()
    index.put(IdDigest(("m", "a", 1)).followed_by(array_of(1)), [("a", array_of(2))], None)

    policies = (("m", "a", 1), ("m", "a", 2), ("m", None, 0), ("n", "a", 1))
    found = [index.base_of(array_of(1, 2, 3), IdDigest(policy)) for policy in policies]
    assert found == [("a", 2), None, None, None]


def test_a_prompt_is_digested_while_its_base_is_looked_for() -> None:
    """All of it, whether a part of it is known or none."""
    index = SessionIndex()
    for known in (False, True):
        digest = IdDigest()
        assert (index.base_of(array_of(1, 2, 3, 4), digest) is not None) == known
        assert (digest.value(), digest.length) == (digest_of(1, 2, 3, 4).value(), 4)
        index.put(digest_of(1, 2), [("a", array_of(3))], None)


def test_the_oldest_ends_are_dropped_beyond_a_number() -> None:
    """So an index does not grow with its session."""
    ends = KnownEnds()
    for number in range(3):
        ends.put(digest_of(number), str(number), most=2)

    assert ends.longest(array_of(0, 1), IdDigest()) is None
    assert ends.longest(array_of(2, 1), IdDigest()) == ("2", 1)
    ends.put(digest_of(2), "again", most=2)
    ends.put(digest_of(2, 1), "longer", most=2)
    assert ends.longest(array_of(1), IdDigest()) is None
    assert ends.longest(array_of(2, 5), IdDigest()) == ("again", 1)


def test_ends_are_looked_for_from_a_place_on() -> None:
    """Those before it are not found; the digest is that of all ids in any case."""
    ends = KnownEnds()
    ends.put(digest_of(1, 2), "a")
    ends.put(digest_of(1, 2, 3, 4), "b")
    for rest, found in (([3, 4, 5], ("b", 2)), ([3, 4], ("b", 2)), ([3], None), ([], None), ([4, 4], None)):
        digest = digest_of(1, 2)
        assert ends.longest(array_of(*rest), digest) == found
        assert digest.value() == digest_of(1, 2, *rest).value()


def test_messages_are_shared_with_the_node_that_has_most_of_them() -> None:
    """Whatever the order of their keys; tools are compared apart."""
    index, tools = SessionIndex(), [{"type": "function"}]
    first = [said_by_user("one"), assistant_message("two"), said_by_user("three")]
    index.put(digest_of(1), [("a", array_of(2))], PromptMessages(first[:1], tools))
    index.put(digest_of(1), [("b", array_of(3))], PromptMessages(first, tools))

    again = [{"content": "one", "role": "user"}, *first[1:], said_by_user("four")]
    assert index.message_base(PromptMessages(again, tools)) == ("b", 3, True)
    assert index.message_base(PromptMessages(again[:1], None)) == ("b", 1, False)
    assert index.message_base(PromptMessages([said_by_user("else")], tools)) is None


def test_an_index_is_forgotten() -> None:
    """On demand, and after the time for which the session itself is kept."""
    clock = Clock()
    indexes = SessionIndexes(10.0, clock)
    indexes.put(KEY, digest_of(1), [("a", array_of(2))], None)
    assert indexes.of(KEY).base_of(array_of(1, 2, 3), IdDigest()) == ("a", 2)

    clock.now += 11
    assert indexes.of(KEY).base_of(array_of(1, 2, 3), IdDigest()) is None

    indexes.put(KEY, digest_of(1), [("a", array_of(2))], None)
    indexes.forget(KEY)
    assert indexes.of(KEY).base_of(array_of(1, 2, 3), IdDigest()) is None


def test_indexes_used_least_recently_make_room() -> None:
    """However many messages the sessions have: those of a session count for as long as they are known."""
    indexes, other = SessionIndexes(10.0, most_bytes=3000), ("acme", "other")
    conversation = PromptMessages([said_by_user("one")] * 100, None)
    for key in (KEY, other, KEY):
        indexes.put(key, digest_of(1), [("a", array_of(2))], conversation)
    assert indexes.of(other).base_of(array_of(1, 2), IdDigest()) == ("a", 2)
    assert indexes.size == indexes.of(KEY).size + indexes.of(other).size

    indexes.put(("acme", "third"), digest_of(1), [("a", array_of(2))], conversation)
    assert indexes.of(other).base_of(array_of(1, 2), IdDigest()) is None
    assert indexes.of(KEY).base_of(array_of(1, 2), IdDigest()) == ("a", 2)
    assert indexes.size < 3000

    indexes.forget(KEY)
    indexes.forget(("acme", "third"))
    assert indexes.size == 0
