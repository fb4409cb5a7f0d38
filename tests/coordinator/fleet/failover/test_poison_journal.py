"""Processes of one port read the same poison events in the same order."""

import threading
from pathlib import Path

import pytest

from tokenwire.coordinator.fleet.failover.poison_journal import PoisonEvent, PoisonJournal


def death(number: int) -> PoisonEvent:
    """Return an event."""
    return PoisonEvent(
        "death", float(number), frozenset({b"one", b"two"}), f"instance {number}", certain=True, unproven_at="a"
    )


def test_every_process_reads_all_events_once(tmp_path: Path) -> None:
    """Its own among them, as they were written, also if it starts later."""
    one, other = PoisonJournal(tmp_path), PoisonJournal(tmp_path)
    assert one.read_new() == ()
    assert one.append(death(1))
    assert other.append(death(2))

    assert one.read_new() == [death(1), death(2)]
    assert one.read_new() == ()
    one.append(death(3))
    assert other.read_new() == [death(1), death(2), death(3)]
    assert PoisonJournal(tmp_path).read_new() == [death(1), death(2), death(3)]


def test_a_line_that_is_still_being_written_is_read_later(tmp_path: Path) -> None:
    """Whole, once its end is there."""
    journal = PoisonJournal(tmp_path)
    journal.append(death(1))
    (path,) = tmp_path.iterdir()
    line = path.read_bytes()
    path.write_bytes(line + line[:20])

    assert journal.read_new() == [death(1)]
    assert journal.read_new() == []
    path.write_bytes(line * 2)
    assert journal.read_new() == [death(1)]


def test_concurrent_writers_do_not_mix(tmp_path: Path) -> None:
    """Each event is one line, however many write."""
    journals = [PoisonJournal(tmp_path) for _ in range(4)]
    threads = [
        threading.Thread(target=lambda journal=journal: [journal.append(death(number)) for number in range(50)])
        for journal in journals
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(event.when for event in journals[0].read_new()) == sorted([float(n) for n in range(50)] * 4)


def test_a_directory_that_is_gone_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The event is the process's own then."""
    journal = PoisonJournal(tmp_path / "gone")

    assert not journal.append(death(1))
    assert journal.read_new() == ()
    assert "cannot share a poison event" in caplog.text
