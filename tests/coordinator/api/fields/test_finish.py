"""Fields that a choice has when it ends."""

from tokenwire.coordinator.api.fields.finish import resumption_fields, weight_version_spans
from tokenwire.coordinator.types import Finish, WeightSpan


def test_only_a_resumed_choice_is_marked() -> None:
    """Choices that are still running, and those of one worker, have no field."""
    assert resumption_fields(Finish("stop", resumed=True)) == {"resumed": True}
    assert resumption_fields(Finish("stop")) == resumption_fields(None) == {}


def test_weight_versions_are_spans_of_tokens() -> None:
    """No spans are an empty list, and weights without labels null."""
    finish = Finish("stop", weight_versions=[WeightSpan("v1", 0, 2)])

    assert weight_version_spans(finish) == [{"version": "v1", "start": 0, "end": 2}]
    assert weight_version_spans(Finish("stop", weight_versions=[])) == []
    assert weight_version_spans(Finish("stop")) is None
