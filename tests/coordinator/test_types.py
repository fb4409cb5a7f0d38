"""What passes between the parts of the coordinator."""

from dataclasses import replace

from tests.coordinator.fakes import served_model


def test_a_models_defaults_are_vllms_where_it_has_none() -> None:
    """Its generation config overrides them; its stop tokens end every reply."""
    model = served_model(defaults={"temperature": 0.5, "stop_token_ids": [7]})

    assert (model.sampling_defaults.temperature, model.sampling_defaults.top_p) == (0.5, 1.0)
    assert list(model.stop_token_ids) == [7]
    assert list(served_model().stop_token_ids) == []


def test_workers_serve_a_model_by_its_first_name() -> None:
    """Adapters are served by the workers of their base model."""
    model = served_model()

    assert model.base_model == "digits"
    assert replace(model, names=("red",), base_model="digits").base_model == "digits"
