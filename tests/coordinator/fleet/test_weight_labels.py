"""How often a worker may change the label of its weights."""

import pytest

from tests.clock import Clock
from tokenwire.coordinator.fleet.announcement_limits import LONGEST_NAME
from tokenwire.coordinator.fleet.weight_labels import MOST_CHANGES_AT_ONCE, WeightLabels
from tokenwire.errors import ProtocolError


def test_a_label_may_change_as_often_as_weights_can() -> None:
    """For as long as a reply takes, and many times at once."""
    clock = Clock()
    labels = WeightLabels(clock)
    labels.begin("v0")
    for step in range(1000):
        clock.now += 0.5
        labels.change(f"v{step}")
    for step in range(MOST_CHANGES_AT_ONCE - 1):
        labels.change(f"w{step}")

    assert labels.current == f"w{MOST_CHANGES_AT_ONCE - 2}"


def test_labels_that_change_with_each_token_violate_the_protocol() -> None:
    """Every reply would keep all of them."""
    labels = WeightLabels(Clock())
    for step in range(MOST_CHANGES_AT_ONCE):
        labels.change(f"v{step}")
    with pytest.raises(ProtocolError, match="changed the label of its weights 64 times at once"):
        labels.change("another")


@pytest.mark.parametrize("label", ["v" * (LONGEST_NAME + 1), "a\nb"])
def test_a_label_of_a_frame_is_what_a_welcome_may_have(label: str) -> None:
    """Since it is a part of replies, too."""
    with pytest.raises(ProtocolError, match="weight_version"):
        WeightLabels(Clock()).change(label)
