"""Seeds draw expensive requests of every route, with every field."""

import json
from functools import cache

import pytest
from pydantic import BaseModel

from tests.adversary.attack import Attack
from tests.adversary.draws import TABLES, UNKNOWN, draw
from tests.adversary.rows import ROWS
from tests.bodies import body_models, models_in, models_within
from tokenwire.coordinator.api.fields.common import RequestFields
from tokenwire.coordinator.api.tokens.sampling_params import SamplingParams
from tokenwire.coordinator.app import build_app
from tokenwire.coordinator.settings import CoordinatorSettings

pytestmark = pytest.mark.slow

_OTHER_NAMES = {"/v1/tokenize", "/v1/detokenize"}
_SEEDS = 45_000


@cache
def _models() -> dict[str, type[BaseModel]]:
    """Return the model of every route with the default options."""
    routes = body_models(build_app(CoordinatorSettings(("127.0.0.1:1",))))
    return {path: model for (method, path), model in routes.items() if method == "POST" and path not in _OTHER_NAMES}


@cache
def _drawn() -> list[Attack]:
    return [draw(seed) for seed in range(_SEEDS)]


def _wire_names(model: type[BaseModel]) -> set[str]:
    return {field.alias or name for name, field in model.model_fields.items()}


@pytest.mark.parametrize("seed", range(5))
def test_a_seed_always_draws_the_same(seed: int) -> None:
    """Name and body."""
    first, second = draw(seed), draw(seed)

    assert first.name == second.name
    assert first.body("m") == second.body("m")


def test_every_route_is_drawn() -> None:
    """A new route fails this test until it has a table of fields."""
    assert TABLES.keys() == _models().keys()
    assert {attack.path for attack in _drawn()} == TABLES.keys()


@pytest.mark.parametrize("path", list(TABLES))
def test_every_field_of_a_route_is_drawn(path: str) -> None:
    """A new field fails this test until it has a value that is expensive, or makes others expensive."""
    drawn = {name for attack in _drawn() if attack.path == path for name in attack.fields}

    assert _wire_names(_models()[path]) <= {name.partition(".")[0] for name in drawn}
    assert drawn >= TABLES[path].keys()


@pytest.mark.parametrize("path", list(TABLES))
def test_every_field_inside_of_others_has_a_value(path: str) -> None:
    """A new field of an object within the body, too."""
    for name, field in _models()[path].model_fields.items():
        dotted = {each.partition(".")[2] for each in TABLES[path] if each.startswith(f"{name}.")}
        for inner in models_within(field.annotation):
            if any(issubclass(each, RequestFields) for each in models_in(field.annotation)):
                missing = _wire_names(inner) - dotted if issubclass(inner, RequestFields) else set()
            elif any(issubclass(each, SamplingParams) for each in models_in(field.annotation)):
                missing = _wire_names(inner) - dotted if issubclass(inner, SamplingParams) else set()
            else:
                texts = [value.json_text() for value in TABLES[path][field.alias or name]]
                missing = {each for each in _wire_names(inner) if not any(f'"{each}":' in text for text in texts)}
            assert missing == set(), f"{name} of {path}"


def test_generation_kwargs_are_sampling_parameters() -> None:
    """TRL's routes take any of them in an object without a model."""
    for path in ("/generate/", "/chat/"):
        inside = {name.partition(".")[2] for name in TABLES[path] if name.startswith("generation_kwargs.")}
        assert _wire_names(SamplingParams) <= inside


def test_requests_are_sent_and_read_in_every_way() -> None:
    """What multiplies, what nobody reads, and clients that are slow or gone."""
    drawn = _drawn()

    assert any(UNKNOWN in attack.fields for attack in drawn)
    assert {attack.sending for attack in drawn} == {"whole", "in pieces", "never finished"}
    assert {attack.reading for attack in drawn} == {"read", "stand still", "leave at once"}
    assert max(attack.copies for attack in drawn) == 60
    assert max(len(attack.fields) for attack in drawn) > 6


def test_a_body_has_its_fields_inside_of_each_other() -> None:
    """A dot in a name is an object."""
    attack = next(attack for attack in _drawn() if attack.fields.keys() >= {"sampling_params.n", "token_ids"})

    body = json.loads(attack.body("m"))

    assert body["model"] == "m"
    assert body["sampling_params"]["n"] == json.loads(attack.fields["sampling_params.n"].json_text())


def test_named_attacks_are_of_routes_that_exist() -> None:
    """And are found by their names."""
    assert {attack.path for attack in ROWS.values()} <= {*TABLES, "/openapi.json"}
    assert all(name == attack.name for name, attack in ROWS.items())
