"""A process notices by the mark of a session that another one has dropped it."""

from tokenwire.coordinator.trajectories.marks import SessionMarks
from tokenwire.coordinator.trajectories.store import SessionKey

KEY = ("acme", "s")


def test_another_mark_than_before_says_that_a_session_was_dropped() -> None:
    """Once, and none that was not known."""
    dropped: list[SessionKey] = []
    marks = SessionMarks[str](dropped.append)
    for mark in ("a", "a", "b", "b"):
        marks.put(KEY, mark)
    assert dropped == [KEY]

    marks.drop(KEY)
    marks.put(KEY, "c")
    assert dropped == [KEY, KEY]
    assert marks.find(KEY) == "c"


def test_whose_mark_is_forgotten_may_have_been_dropped() -> None:
    """The one that was written to least recently."""
    dropped: list[SessionKey] = []
    marks = SessionMarks[str](dropped.append, most=2)
    for name in ("a", "b", "a", "c"):
        marks.put(("acme", name), name)

    assert dropped == [("acme", "b")]
    assert marks.find(("acme", "b")) is None
