"""Keys that clients choose take bounded memory."""

from tokenwire.process.pruned_dict import PrunedDict


def test_what_is_not_in_use_is_forgotten() -> None:
    """Any number may come and go; what is in use stays, and what has come last."""
    table = PrunedDict[int, bool](lambda in_use: in_use, kept=10)
    for number in range(1000):
        table[number] = number == 500
        assert len(table) <= 12

    assert table[500]
    assert 999 in table


def test_what_is_in_use_is_not_looked_at_for_each_new_key() -> None:
    """Only when there are twice as many as were in use the last time."""
    looked_at: list[int] = []
    table = PrunedDict[int, int](lambda value: looked_at.append(value) or True, kept=10)  # type: ignore[func-returns-value]
    for number in range(1000):
        table[number] = number

    assert len(table) == 1000
    assert len(looked_at) < 2000
