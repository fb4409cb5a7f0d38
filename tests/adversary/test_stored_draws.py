"""Seeds draw attacks on every route of what is stored, after requests that store it."""

import json
import re
from functools import cache

import pytest
from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.routing import Route

from tests.adversary.attack import Attack
from tests.adversary.draws import TABLES
from tests.adversary.stored_draws import NEW_SESSION, ON_RESPONSES, ON_SESSIONS, REWARD, draw_stored
from tokenwire.coordinator.api.trajectories.bodies import NewSession, RewardBody
from tokenwire.coordinator.app import build_app
from tokenwire.coordinator.response_store.settings import ResponseStoreSettings
from tokenwire.coordinator.settings import CoordinatorSettings
from tokenwire.coordinator.trajectories.settings import TrajectorySettings


@cache
def _stored_attacks() -> list[Attack]:
    return [draw_stored(seed) for seed in range(3_000)]


def _routes(app: Starlette) -> set[tuple[str, str]]:
    return {(method, each.path) for each in app.routes if isinstance(each, Route) for method in each.methods or ()}


@pytest.mark.parametrize("seed", range(9))
def test_a_seed_always_draws_the_same(seed: int) -> None:
    """Name, body and all that is sent before."""
    first, second = draw_stored(seed), draw_stored(seed)

    assert first.name == second.name
    assert [each.body("m") for each in (*first.before, first)] == [each.body("m") for each in (*second.before, second)]


def test_every_route_of_what_is_stored_is_stored_attacks() -> None:
    """A new one fails this test until it is a target."""
    settings = CoordinatorSettings(
        ("127.0.0.1:1",),
        response_store=ResponseStoreSettings(enabled=True),
        trajectories=TrajectorySettings(enabled=True),
    )
    stored = {
        (method, path)
        for method, path in _routes(build_app(settings))
        if method != "HEAD" and path not in TABLES and re.match(r"/v1/responses/|/sessions|/traces|/admin/flush", path)
    }
    targets = {(method, _pattern(path)) for method, path, _ in (*ON_RESPONSES, *ON_SESSIONS)}

    assert {(method, _pattern(path)) for method, path in stored} == targets
    drawn = {(each.method, _pattern(each.path)) for each in _stored_attacks()}
    assert targets <= drawn


def _pattern(path: str) -> str:
    """Return a path without its query, with all that differs as a star."""
    path = re.sub(r"\{[^}]*\}(:x)?", "*", path.partition("?")[0])
    path = re.sub(r"resp_a\d+-\d+|(?<=/)s\d+(:x)?(?=/|$)", "*", path)
    return path.replace("/nodes/x/", "/nodes/*/")


@pytest.mark.parametrize(("model", "table"), [(NewSession, NEW_SESSION), (RewardBody, REWARD)])
def test_every_field_of_a_session_has_a_value(model: type[BaseModel], table: dict[str, object]) -> None:
    """As of other bodies."""
    assert {field.alias or name for name, field in model.model_fields.items()} == table.keys()


def test_a_continued_response_is_that_of_the_request_before() -> None:
    """Its client names it by a header."""
    attack = next(
        each for each in _stored_attacks() if len(each.before) == 3 and "previous_response_id" in each.before[1].fields
    )

    continued = json.loads(attack.before[1].fields["previous_response_id"].json_text())

    assert continued == f"resp_{attack.before[0].headers['X-Request-Id']}"


def test_requests_of_sessions_name_them() -> None:
    """So they are recorded, and what is asked for is there."""
    attack = next(each for each in _stored_attacks() if "/trajectory" in each.path)

    assert {step.headers["X-Session-Id"] for step in attack.before} == {attack.path.split("/")[2]}
