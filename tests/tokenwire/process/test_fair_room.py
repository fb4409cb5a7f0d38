"""What one client leaves to others."""

from tokenwire.process.fair_room import leaves_room


def test_one_client_leaves_a_quarter_and_two_a_seventh() -> None:
    """Each by itself, whatever the others have."""
    assert leaves_room(own=70, more=5, free=30)
    assert not leaves_room(own=70, more=6, free=30)
    assert leaves_room(own=40, more=20, free=40)
    assert leaves_room(own=55, more=5, free=140 - 55 - 60)
    assert not leaves_room(own=60, more=1, free=140 - 60 - 60)


def test_a_larger_weight_leaves_less() -> None:
    """Of three times as many."""
    assert leaves_room(own=80, more=10, free=20, times_free=9)
    assert not leaves_room(own=80, more=11, free=20, times_free=9)
