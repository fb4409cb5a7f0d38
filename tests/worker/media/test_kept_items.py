"""Tests of the items that are kept within a bound."""

from tokenwire.worker.media.kept_items import KeptItems


def test_items_used_least_recently_make_room() -> None:
    """The bound is on all of them together."""
    kept = KeptItems[str, str](10)
    for key in ("a", "b"):
        kept.keep(key, f"item {key}", 4)
    assert kept.get("a") == "item a"
    kept.keep("c", "item c", 4)
    assert [key in kept for key in ("a", "b", "c")] == [True, False, True]
    assert kept.get("b") is None
    assert kept.used_bytes == 8


def test_an_item_beyond_the_bound_is_not_kept() -> None:
    """One that is kept again counts once."""
    kept = KeptItems[str, str](10)
    kept.keep("a", "item", 11)
    assert ("a" in kept, kept.used_bytes) == (False, 0)
    kept.keep("a", "item", 6)
    kept.keep("a", "another", 7)
    assert (kept.get("a"), kept.used_bytes) == ("another", 7)
