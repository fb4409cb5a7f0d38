"""Sessions in a directory outlive their process, survive what a crash cuts off, and are bounded in time and size."""

import os
from pathlib import Path
from threading import get_ident

import pytest

from tests.coordinator.trajectories.disk import full_disk
from tokenwire.coordinator.trajectories.directory_store import DirectoryTrajectoryStore
from tokenwire.coordinator.trajectories.session_limit import RESERVE_BYTES, SessionLimit
from tokenwire.coordinator.trajectories.store import SessionKey
from tokenwire.errors import InvalidRequest, Unavailable

KEY = ("acme", "a/../b")
OTHER = ("other", "a/../b")


def directory_store(
    folder: Path, max_bytes: int = 2**20, dropped: list[SessionKey] | None = None
) -> DirectoryTrajectoryStore:
    """Return a store in a folder."""
    on_dropped = ([] if dropped is None else dropped).append
    return DirectoryTrajectoryStore(folder / "sessions", max_bytes, 60.0, on_dropped)


async def test_sessions_outlive_their_process(tmp_path: Path) -> None:
    """Others append to them, and find them, only as their tenant; nobody else may read the files."""
    one, two = directory_store(tmp_path), directory_store(tmp_path)
    one.append(KEY, "", b"1")
    await one.close()
    two.append(KEY, "", b"2")

    assert await two.read(KEY) == [b"1", b"2"]
    assert await one.read(KEY) == [b"1", b"2"]
    assert await two.read(OTHER) == []
    assert [session.id for session in await two.sessions("acme")] == ["a/../b"]
    assert await two.sessions("other") == []
    assert all(path.stat().st_mode & 0o077 == 0 for path in (tmp_path / "sessions").rglob("*"))
    await two.close()


async def test_a_session_has_the_size_of_its_file(tmp_path: Path) -> None:
    """None if there is no such session."""
    store = directory_store(tmp_path)
    store.append(("acme", "s"), "", b"x" * 1000)

    assert 1000 < await store.size_of(("acme", "s")) < 1200
    assert await store.size_of(("acme", "other")) == 0
    await store.close()


async def test_what_a_crash_cut_off_is_passed_over(tmp_path: Path) -> None:
    """What was stored before and after it is read."""
    store = directory_store(tmp_path)
    for event in (b"first", b"second"):
        store.append(KEY, "", event)
    await store.flush()
    (file,) = (tmp_path / "sessions").glob("*/*")
    file.write_bytes(file.read_bytes()[:-3])
    store.append(KEY, "", b"third")

    assert await store.read(KEY) == [b"first", b"third"]
    await store.close()


async def test_a_deleted_session_is_gone(tmp_path: Path) -> None:
    """Its file too."""
    dropped: list[SessionKey] = []
    store = directory_store(tmp_path, dropped=dropped)
    store.append(KEY, "", b"1")

    assert await store.delete(KEY)
    assert not await store.delete(KEY)
    assert await store.read(KEY) == []
    assert not [*(tmp_path / "sessions").glob("*/*")]
    assert dropped == [KEY, KEY]
    await store.close()


async def test_old_sessions_are_deleted_first_by_time_then_by_size(tmp_path: Path) -> None:
    """When the next one is written."""
    dropped: list[SessionKey] = []
    names = ("expired", "older", "newer")
    before = directory_store(tmp_path, 2**30)
    for name in names:
        before.append(("acme", name), "", b"x" * 3000)
        await before.flush()
    for name, age in zip(names, (100, 20, 10), strict=True):
        path = before._path(("acme", name))
        os.utime(path, (path.stat().st_mtime - age,) * 2)

    store = directory_store(tmp_path, 6000, dropped)
    store.append(("acme", "newest"), "", b"x" * 100)

    newest, newer = await store.sessions("acme")
    assert [newest.id, newer.id] == ["newest", "newer"]
    assert await store.sessions("acme", 1) == await store.sessions("acme", since=newest.created_at) == [newest]
    assert dropped == [("acme", "expired"), ("acme", "older")]
    await store.close()
    await before.close()


async def test_what_does_not_fit_into_its_session_is_dropped(tmp_path: Path) -> None:
    """Whichever process has stored what is there; an empty session is none, and a full one still takes rewards."""
    dropped: list[SessionKey] = []
    other, folder = directory_store(tmp_path), tmp_path / "sessions"
    store = DirectoryTrajectoryStore(folder, 2**20, 60.0, dropped.append, SessionLimit(1000))
    store.append(OTHER, "", b"0" * 1001)
    other.append(KEY, "", b"x" * 700)
    await other.flush()
    for event in (b"y" * 300, b"z" * 30):
        store.append(KEY, "", event)
        await store.flush()

    await store.put(KEY, "", b"reward" * 100)

    assert await store.read(KEY) == [b"x" * 700, b"z" * 30, b"reward" * 100]
    assert store.most_session_bytes == 1000 + RESERVE_BYTES
    assert (await store.read(OTHER), await store.size_of(OTHER), await store.sessions("other")) == ([], 0, [])
    assert ({*dropped}, store.dropped.events) == ({KEY, OTHER}, 2)
    await store.close()
    await other.close()


async def test_who_has_most_loses_its_oldest_sessions(tmp_path: Path) -> None:
    """However old those of other tenants are."""
    dropped: list[SessionKey] = []
    before = directory_store(tmp_path, 2**30)
    for age, key in enumerate([("other", "new"), ("other", "old"), ("acme", "small")]):
        before.append(key, "", b"x" * (100 if key[0] == "acme" else 3000))
        await before.flush()
        path = before._path(key)
        os.utime(path, (path.stat().st_mtime - age,) * 2)

    store = directory_store(tmp_path, 6000, dropped)
    store.append(("acme", "newest"), "", b"x" * 100)
    await store.flush()

    assert dropped == [("other", "old")]
    assert store.dropped.sessions == 1
    assert {session.id for session in await store.sessions("acme")} == {"small", "newest"}
    await store.close()
    await before.close()


async def test_sessions_are_dropped_where_they_are_recorded(tmp_path: Path) -> None:
    """In the thread of the event loop, so that no recording sees half of it."""
    threads: list[int] = []
    before = directory_store(tmp_path)
    before.append(KEY, "", b"x" * 3000)
    await before.close()

    store = DirectoryTrajectoryStore(tmp_path / "sessions", 1000, 60.0, lambda key: threads.append(get_ident()))
    store.append(OTHER, "", b"1")
    await store.close()

    assert set(threads) == {get_ident()}


@pytest.mark.parametrize("begun_anew", [False, True])
async def test_a_session_that_another_process_dropped_is_begun_anew(tmp_path: Path, begun_anew: bool) -> None:
    """Whatever is stored first says so, and only that, also if the other one has begun it anew."""
    dropped: list[SessionKey] = []
    one, other = directory_store(tmp_path, dropped=dropped), directory_store(tmp_path)
    one.append(KEY, "", b"1")
    await one.flush()
    one.append(KEY, "", b"2")
    await one.flush()
    assert await other.delete(KEY)
    if begun_anew:
        other.append(KEY, "", b"more than before" * 10)
        await other.flush()
    assert dropped == []
    one.append(KEY, "", b"3")
    await one.flush()
    one.append(KEY, "", b"4")
    await one.flush()

    assert dropped == [KEY]
    await one.close()
    await other.close()


async def test_files_that_are_gone_or_cut_off_are_not_listed(tmp_path: Path) -> None:
    """Another process may have dropped one just now; the others are listed."""
    store = directory_store(tmp_path)
    store.append(KEY, "", b"1")
    await store.flush()
    (file,) = (tmp_path / "sessions").glob("*/*")
    file.with_stem("gone").symlink_to(tmp_path / "nowhere")
    file.with_stem("cut").write_bytes(file.read_bytes()[5:])

    assert [session.id for session in await store.sessions("acme")] == ["a/../b"]
    await store.close()


async def test_what_a_full_disk_cuts_off_is_dropped(tmp_path: Path) -> None:
    """And said to be, so that later turns do not refer to it."""
    dropped: list[SessionKey] = []
    store = directory_store(tmp_path, dropped=dropped)
    store.append(KEY, "", b"1")
    await store.flush()
    (file,) = (tmp_path / "sessions").glob("*/*")
    with full_disk(file.stat().st_size + 100):
        store.append(KEY, "", b"x" * 1000)
        with pytest.raises(Unavailable, match="The store of trajectories failed: No space left on device"):
            await store.flush()

    assert dropped == [KEY]
    assert await store.read(KEY) == [b"1"]
    await store.close()


async def test_a_folder_that_cannot_be_used_is_an_error(tmp_path: Path) -> None:
    """At startup; one that vanishes later loses events, and readers are told to try again."""
    (tmp_path / "sessions").write_text("a file")
    with pytest.raises(InvalidRequest, match="--trajectories-store: cannot use"):
        directory_store(tmp_path)
    (tmp_path / "sessions").unlink()

    store = directory_store(tmp_path)
    (tmp_path / "sessions").rmdir()
    store.append(KEY, "", b"1")
    assert await store.read(KEY) == []
    (tmp_path / "sessions").write_text("a file")
    with pytest.raises(Unavailable):
        await store.read(KEY)
    await store.close()
