"""A failover policy that records its callbacks."""

from tokenwire.coordinator.fleet.failover.sequence import Loss, ResumableSequence


class RecordingPolicy:
    """Records losses and counts ends."""

    def __init__(self) -> None:
        self.losses: list[Loss] = []
        self.ends = 0
        self.others = False
        """Whether there are workers that have not failed a sequence."""

    def on_lost(self, sequence: ResumableSequence, loss: Loss) -> None:
        """Record the loss."""
        self.losses.append(loss)

    def on_diverged(self, sequence: ResumableSequence, position: int) -> None:
        """Do nothing."""

    def has_other(self, sequence: ResumableSequence) -> bool:
        """Return what the test set."""
        return self.others

    def on_ended(self, sequence: ResumableSequence) -> None:
        """Count the end."""
        self.ends += 1
