"""What sequences at a worker count of their tenant's share, from their start to their end."""

from dataclasses import dataclass, field

import pytest

from tokenwire.coordinator.fleet.admission.work_meter import REPLY_TOKENS, WorkMeter


@dataclass(slots=True)
class Generated:
    """What a sequence has."""

    gained: int = 0
    cached_tokens: int = 0


@dataclass(slots=True)
class SentSequences:
    """Sequences at a worker."""

    sequences: list[Generated]
    ended: set[int] = field(default_factory=set)

    def running(self) -> list[int]:
        """Return the places of those that have not ended."""
        return [place for place in range(len(self.sequences)) if place not in self.ended]


def metered(count: int = 1, prompt_tokens: int = 0) -> tuple[WorkMeter, SentSequences]:
    """Return sequences that have started, and their meter."""
    part = SentSequences([Generated() for _ in range(count)])
    return WorkMeter(part, part.sequences, prompt_tokens), part


def test_a_short_reply_counts_what_it_has() -> None:
    """What was counted in advance is taken back at its end, once."""
    meter, part = metered()
    part.sequences[0].gained = 3
    assert meter.read() == 0

    part.ended.add(0)

    assert (meter.read(), meter.read()) == (3 - REPLY_TOKENS, 0)


def test_more_is_counted_in_advance_only_once_it_is_needed() -> None:
    """Not for a reply that has exactly what was counted."""
    meter, part = metered()

    part.sequences[0].gained = REPLY_TOKENS
    assert meter.read() == 0
    part.sequences[0].gained += 1
    assert meter.read() == REPLY_TOKENS


def test_a_long_reply_counts_exactly_what_it_has_however_often_it_is_read() -> None:
    """It goes on after it was read, and is read again only at its end."""
    meter, part = metered()
    counted: float = REPLY_TOKENS
    for gained in (REPLY_TOKENS + 1, 3 * REPLY_TOKENS, 7 * REPLY_TOKENS + 9):
        part.sequences[0].gained = gained
        counted += meter.read()

    part.sequences[0].gained += 1
    part.ended.add(0)

    assert counted + meter.read() == 7 * REPLY_TOKENS + 10


@pytest.mark.parametrize(("prompt_tokens", "expected"), [(120, -90), (0, 0)])
def test_cached_tokens_of_the_prompt_count_a_tenth(prompt_tokens: int, expected: int) -> None:
    """Once, where the prompt was counted."""
    meter, part = metered(count=2, prompt_tokens=prompt_tokens)
    assert meter.read() == 0

    for sequence in part.sequences:
        sequence.cached_tokens = 100

    assert (round(meter.read(), 6), meter.read()) == (expected, 0)


def test_what_a_sequence_gains_once_it_has_gone_on_elsewhere_is_not_read() -> None:
    """It left with what it had."""
    meter, part = metered(count=2)
    part.sequences[0].gained = 10
    part.ended.add(0)
    assert meter.read() == 10 - REPLY_TOKENS

    part.sequences[0].gained = 500

    assert meter.read() == 0


def test_all_that_runs_begins_anew() -> None:
    """Others begin to wait: what was done before counts no more, and prompts do not."""
    meter, part = metered(count=3, prompt_tokens=100)
    part.sequences[0].gained = 2 * REPLY_TOKENS
    part.ended.add(2)

    assert meter.restart() == 2

    part.sequences[0].cached_tokens = 100
    assert meter.read() == 0
    part.sequences[0].gained += 1
    assert meter.read() == REPLY_TOKENS


def test_what_is_counted_and_not_done_is_ahead() -> None:
    """A prompt until its first token, or until it is known what was cached; and of each reply what is left."""
    meter, part = metered(count=2, prompt_tokens=100)
    assert meter.ahead == 100 + 2 * REPLY_TOKENS
    meter.read()
    assert meter.ahead == 100 + 2 * REPLY_TOKENS

    part.sequences[0].gained = REPLY_TOKENS + 1
    meter.read()
    assert meter.ahead == REPLY_TOKENS - 1 + REPLY_TOKENS

    part.ended.update({0, 1})
    meter.read()
    assert meter.ahead == 0
