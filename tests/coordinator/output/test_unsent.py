"""What a stream has yet to send: merged steps, steps in order, sizes."""

from tokenwire.coordinator.output.unsent import UnsentOutput, size_bytes
from tokenwire.coordinator.text.logprobs import ScoredPosition, ScoredToken


def test_steps_that_follow_are_in_order() -> None:
    """The first one, then each that was appended."""
    unsent = UnsentOutput()
    unsent.texts.append("a")
    for text in "bc":
        unsent.follow().texts.append(text)

    assert [step.texts for step in unsent.steps()] == [["a"], ["b"], ["c"]]


def test_log_probabilities_of_merged_steps_are_joined() -> None:
    """Without any, there is no list."""
    unsent = UnsentOutput()
    assert unsent.logprobs is None

    one, two, three = (ScoredPosition.of(ScoredToken(each, "a", -0.5, 1)) for each in range(3))
    unsent.add_logprobs([one])
    unsent.add_logprobs([two, three])

    assert unsent.logprobs == [one, two, three]


def test_log_probabilities_are_most_of_a_size() -> None:
    """Each text, id and scored token counts."""
    scored = ScoredPosition.of(*[ScoredToken(1, "a", -0.5, 1)] * 20)

    assert size_bytes("abc", [], None) == size_bytes("", [], None) + 3
    assert size_bytes("", [1, 2], None) > size_bytes("", [1], None)
    assert size_bytes("", [1], [scored]) - size_bytes("", [1], None) > 20 * 200
