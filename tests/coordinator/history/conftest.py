"""A model for tests of the history."""

import pytest

from tests.coordinator.history.models import small_model
from tokenwire.coordinator.types import ServedModel


@pytest.fixture
def model() -> ServedModel:
    """Return a model with a ChatML template."""
    return small_model()
