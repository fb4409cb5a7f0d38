"""The budget of one rendering."""

import pytest
from jinja2 import TemplateError

from tokenwire.coordinator.text.template.budget import Budget, RenderLimits


def test_characters_add_up() -> None:
    """The limit itself may be reached."""
    budget = Budget(RenderLimits(characters=10))

    budget.charge(4)
    budget.charge(6)
    with pytest.raises(TemplateError, match="more than 10 characters"):
        budget.charge(1)


def test_a_rendering_has_a_deadline() -> None:
    """It begins with the budget."""
    budget = Budget(RenderLimits(seconds=5))
    budget.tick()

    budget.began_at -= 6
    with pytest.raises(TemplateError, match="longer than 5 seconds"):
        budget.tick()
