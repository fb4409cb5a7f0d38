"""What is taken of memory while requests are received."""

from tokenwire.coordinator.http.receiving import ReceivingMemory


class Sender:
    """A connection that remembers whether it was given up."""

    gone = False

    def give_up(self) -> None:
        """Remember."""
        self.gone = True


def test_beyond_the_limit_the_oldest_are_given_up() -> None:
    """As many as need be; those that are complete count no more."""
    memory = ReceivingMemory(100)
    first, complete, second, third = Sender(), Sender(), Sender(), Sender()
    memory.hold(first, 30)
    memory.hold(complete, 30)
    memory.hold(complete, 0)
    memory.hold(second, 60)
    assert memory.held_bytes == 90

    memory.hold(third, 80)

    assert [each.gone for each in (first, complete, second, third)] == [True, False, True, False]
    assert memory.held_bytes == 80


def test_who_takes_more_than_all_may_is_given_up() -> None:
    """It does not count any more, and ends no other."""
    memory = ReceivingMemory(100)
    alone = Sender()
    memory.hold(alone, 50)
    memory.hold(alone, 101)

    assert alone.gone
    assert memory.held_bytes == 0
