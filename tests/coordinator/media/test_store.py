"""Tests of the store of pictures."""

import gc
from concurrent.futures import ThreadPoolExecutor

import pytest

from tokenwire.coordinator.media.content import MediaContent
from tokenwire.coordinator.media.store import MediaStore
from tokenwire.errors import Overloaded


def test_equal_bytes_are_kept_once() -> None:
    """A picture that comes again is the one that is kept, and takes no more memory."""
    store = MediaStore(100, picture_bytes=0)
    first = store.add(MediaContent(b"x" * 60))
    assert store.add(MediaContent(b"x" * 60)) is first
    assert store.used_bytes == 60


def test_pictures_that_nobody_has_make_room_for_new_ones() -> None:
    """Those used least recently are dropped, and their memory counts as free."""
    store = MediaStore(100, picture_bytes=0)
    store.add(MediaContent(b"a" * 60))
    store.add(MediaContent(b"b" * 60))
    gc.collect()
    assert store.used_bytes == 60


def test_a_client_leaves_others_room_for_their_pictures() -> None:
    """Three quarters are one client's at most, as long as its requests have them; beside another one it is less."""
    store = MediaStore(100, picture_bytes=0)
    held = [store.add(MediaContent(b"%d" % number * 10), "one") for number in range(7)]
    with pytest.raises(Overloaded, match="of this client's requests take"):
        store.add(MediaContent(b"x" * 10), "one")
    held.append(store.add(MediaContent(b"y" * 15), "two"))
    with pytest.raises(Overloaded, match="of this client's requests take"):
        store.add(MediaContent(b"z" * 15), "two")
    with store.arriving("three") as count:
        count(15)
        with pytest.raises(Overloaded, match="of at most"):
            count(1)
    assert store.used_bytes == 85


def test_who_has_most_makes_room_first() -> None:
    """Another's pictures, which nobody has any more but it may name again, stay until it has most itself."""
    store = MediaStore(100, picture_bytes=0)
    for number in range(2):
        store.name("small", f"{number}", store.add(MediaContent(b"%d" % number * 10), "small"))
    for number in range(10, 20):
        store.add(MediaContent(b"%d" % number * 10), "large")
    gc.collect()
    assert [store.find("small", name) is not None for name in "01"] == [True, True]
    for number in range(20, 25):
        store.name("small", f"{number}", store.add(MediaContent(b"%d" % number * 5), "small"))
    assert store.find("small", "24") is not None


def test_a_client_that_is_refused_takes_nothing_from_others() -> None:
    """What it may not have, though there is room, is not made room for."""
    store = MediaStore(100, picture_bytes=0)
    store.name("small", "its", store.add(MediaContent(b"s" * 2), "small"))
    held = [store.add(MediaContent(bytes([number]) * 10), "large") for number in range(7)]
    with pytest.raises(Overloaded, match="of this client's requests take"):
        store.add(MediaContent(b"x" * 10), "large")
    assert len(held) == 7
    assert store.find("small", "its") is not None


def test_only_what_no_request_has_is_dropped_and_only_if_that_is_enough() -> None:
    """A refusal costs those nothing whose pictures are idle; what others' requests have would free nothing."""
    store = MediaStore(100, picture_bytes=0)
    held = [store.add(MediaContent(bytes([number]) * 18), f"runs {number}") for number in range(5)]
    held.append(store.add(MediaContent(b"g" * 2), "greedy"))
    for number in range(4):
        store.name("idle", str(number), store.add(MediaContent(b"%d" % number), "idle"))
    with pytest.raises(Overloaded):
        store.add(MediaContent(b"x" * 8), "greedy")
    assert store.used_bytes == 96
    assert all(store.find("idle", str(number)) for number in range(4))

    del held[:5]
    held.append(store.add(MediaContent(b"x" * 8), "greedy"))
    assert store.used_bytes == 86
    again = store.add(MediaContent(bytes([4]) * 18), "idle")
    assert store.used_bytes == 86
    assert again.data == bytes([4]) * 18


def test_the_first_picture_of_a_client_need_not_leave_others_room() -> None:
    """Else one that is nearly as large as the memory would never be taken."""
    store = MediaStore(100 * 1024)
    with store.arriving("one") as count:
        count(90 * 1024)
    assert store.add(MediaContent(b"x" * 90 * 1024), "one")


def test_pictures_may_be_dropped_in_other_threads() -> None:
    """Such as those that encode messages: what is counted stays right."""
    store = MediaStore(10**9, picture_bytes=0)
    held = [store.add(MediaContent(b"%d" % number), f"{number % 7}") for number in range(5000)]
    total = store.used_bytes
    with ThreadPoolExecutor(1) as threads:
        dropped = threads.submit(held.clear)
        added = [store.add(MediaContent(b"x%d" % number), f"{number % 7}") for number in range(1000)]
        dropped.result()
    total += sum(len(each.data) for each in added)
    assert store.used_bytes == total
    del added
    with pytest.raises(Overloaded):
        store.add(MediaContent(b"y" * (10**9 + 1)))
    store.count(everything := MediaContent(b""), 10**9)
    assert store.used_bytes == 10**9
    del everything
    assert store.used_bytes == 0


def test_a_picture_counts_for_more_than_its_bytes() -> None:
    """Else millions of the smallest ones would take many times the memory."""
    store = MediaStore(100 * 1024)
    for number in range(200):
        store.add(MediaContent(b"%d" % number))
    gc.collect()
    assert 90 * 1024 < store.used_bytes <= 100 * 1024


def test_who_has_most_names_loses_one_first() -> None:
    """However many one client gives, another's stay."""
    store = MediaStore(100, picture_bytes=0)
    content = store.add(MediaContent(b"x"))
    store.name("small", "its", content)
    for number in range(70_000):
        store.name("large", str(number), content)
    assert store.find("small", "its") is content
    assert store.find("large", "0") is None
    assert store.find("large", "69999") is content


def test_pictures_that_requests_have_are_never_dropped_so_further_ones_are_rejected() -> None:
    """With all memory in use a picture is refused with 429; once the request is gone it is taken."""
    store = MediaStore(100, picture_bytes=0)
    held = store.add(MediaContent(b"a" * 60))
    with pytest.raises(Overloaded, match="--media-memory-mb"):
        store.add(MediaContent(b"b" * 60))
    assert store.used_bytes == 60
    del held
    store.add(MediaContent(b"b" * 60))
    assert store.used_bytes == 60


def test_a_name_is_found_only_by_the_tenant_that_gave_it() -> None:
    """Tenants do not reach each other's pictures by name; a picture that was dropped is not found."""
    store = MediaStore(100, picture_bytes=0)
    content = store.add(MediaContent(b"a" * 60))
    store.name("one", "cat", content)
    assert store.find("one", "cat") is content
    assert store.find("two", "cat") is None
    del content
    store.add(MediaContent(b"b" * 60))
    assert store.find("one", "cat") is None


def test_a_name_may_be_long() -> None:
    """Little of it is kept."""
    store = MediaStore(100, picture_bytes=0)
    content = store.add(MediaContent(b"a"))
    store.name("one", "x" * 1000, content)
    assert store.find("one", "x" * 1000) is content
    assert store.find("one", "x" * 999) is None
