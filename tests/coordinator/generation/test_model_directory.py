"""Models are registered by their workers, and stay for a while without any.

One file, since all tests are of one class.
"""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest

from tests.clock import Clock
from tokenwire.coordinator.auth.caller import ANYBODY, Caller
from tokenwire.coordinator.fleet.admission.expected_models import ExpectedModels
from tokenwire.coordinator.fleet.desired_state import DesiredStates
from tokenwire.coordinator.generation.model_directory import ModelDirectory
from tokenwire.coordinator.generation.traffic_split import Conversation
from tokenwire.coordinator.settings import CoordinatorSettings
from tokenwire.errors import Forbidden, NotFound, Unavailable
from tokenwire.protocol.model_revision import ModelRevision
from tokenwire.protocol.tokenizer_digest import tokenizer_digest
from tokenwire.v1 import inference_pb2 as pb
from tokenwire.worker.simulated_engine.model import load_model

LINGER_S = 300.0
FILES = load_model(None, None).files
OTHER_FILES = {**FILES, "special_tokens_map.json": b"{}"}
ONE, OTHER = tokenizer_digest(FILES), tokenizer_digest(OTHER_FILES)


async def fetch() -> dict[str, bytes]:
    """Return a small tokenizer."""
    return FILES


async def fetch_other() -> dict[str, bytes]:
    """Return another one."""
    return OTHER_FILES


def directory(clock: Clock, targets: DesiredStates | None = None) -> ModelDirectory:
    """Return an empty directory."""
    settings: dict[str, Any] = {"workers": ("nowhere:1",), "model_linger_s": LINGER_S}
    return ModelDirectory(CoordinatorSettings(**settings), targets, clock)


async def test_every_model_is_found_by_each_of_its_names() -> None:
    """Models of different workers coexist."""
    models = directory(Clock(1000.0))
    await models.prepare(pb.Model(names=["red", "crimson"]), fetch)
    await models.prepare(pb.Model(names=["blue"]), fetch)

    assert [model.names for model in models.list()] == [("red", "crimson"), ("blue",)]
    assert models.find("crimson") is models.find("red")
    assert models.find("blue").names == ("blue",)
    assert models.find(None) is models.find("red")


async def test_a_model_outlives_its_workers_for_a_while() -> None:
    """It stays for the configured time; then it is unknown, under all of its names."""
    clock = Clock(1000.0)
    models = directory(clock)
    await models.prepare(pb.Model(names=["red", "crimson"]), fetch)
    await models.prepare(pb.Model(names=["blue"]), fetch)
    models.on_model_lost("red")

    clock.now += LINGER_S - 1
    models.on_model_lost("red")
    assert models.find("crimson").name == "red"
    assert models.find(None).name == "blue"

    clock.now += 1
    for name in ("red", "crimson"):
        with pytest.raises(NotFound, match=f"`{name}` does not exist. Valid aliases: blue"):
            models.find(name)
    assert [model.names for model in models.list()] == [("blue",)]


async def test_a_worker_that_returns_keeps_its_model() -> None:
    """The time starts again when the next worker is lost."""
    clock = Clock(1000.0)
    models = directory(clock)
    await models.prepare(pb.Model(names=["red"]), fetch)
    models.on_model_lost("red")
    clock.now += LINGER_S - 1
    await models.prepare(pb.Model(names=["red"]), fetch)
    clock.now += LINGER_S
    assert models.find("red")

    models.on_model_lost("red")
    clock.now += LINGER_S - 1
    assert models.find("red")


async def test_without_any_model_the_error_depends_on_earlier_ones() -> None:
    """Before the first worker a retry may help; after the last one a name is unknown."""
    clock = Clock(1000.0)
    models = directory(clock)
    with pytest.raises(Unavailable, match="may still be loading"):
        models.find("red")

    await models.prepare(pb.Model(names=["red"]), fetch)
    models.on_model_lost("red")
    clock.now += LINGER_S

    with pytest.raises(NotFound, match="Valid aliases: none now"):
        models.find("red")
    with pytest.raises(Unavailable):
        models.find(None)


async def test_expected_models_are_waited_for() -> None:
    """By name, or as the first one; they are listed as awaited until they are registered, and again when removed."""
    clock = Clock(1000.0)
    settings = CoordinatorSettings(workers=("nowhere:1",), model_linger_s=LINGER_S)
    models = ModelDirectory(settings, clock=clock, expected=ExpectedModels(["red", "blue"]))
    waiting = [asyncio.create_task(models.resolve(name, ANYBODY)) for name in ("red", None)]
    await asyncio.sleep(0)
    assert models.awaited() == ["red", "blue"]
    with pytest.raises(Unavailable):
        await models.resolve("green", ANYBODY)

    await models.prepare(pb.Model(names=["red"]), fetch)

    assert [(await task).names for task in waiting] == [("red",)] * 2
    assert models.awaited() == ["blue"]
    with pytest.raises(NotFound, match="`green` does not exist"):
        await models.resolve("green", ANYBODY)
    models.on_model_lost("red")
    clock.now += LINGER_S
    assert models.awaited() == ["red", "blue"]


class RolloutWorkers:
    """Workers that have these revisions, and whose own weights may have been replaced."""

    def __init__(self, *models: pb.Model) -> None:
        self.models = models
        self.live = [ModelRevision.of(model) for model in models]

    def live_revisions(self, model: str) -> Sequence[ModelRevision]:
        """Return what they serve."""
        return self.live

    def announced(self, model: str) -> Sequence[pb.Model]:
        """Return what they started with."""
        return self.models

    def is_withheld(self, model: str, revision: ModelRevision) -> bool:
        """Return that none is."""
        return False

    def plausible_capacity(self, model: str, revision: ModelRevision) -> int:
        """Return the same for each."""
        return 1


OLD = pb.Model(names=["red"], weights_digest="old", tokenizer_digest=ONE)
NEW = pb.Model(names=["red", "crimson"], weights_digest="new", tokenizer_digest=OTHER)


async def test_requests_are_rendered_for_the_revision_that_they_will_run_on() -> None:
    """With its tokenizer and template, by any name and for each adapter; conversations stay."""
    desired = DesiredStates()
    models = directory(Clock(1000.0), desired)
    models.watch(RolloutWorkers(OLD, NEW))
    for model in (OLD, NEW):
        await models.prepare(model, fetch if model is OLD else fetch_other)
        models.on_workers_changed("red")
    desired.observe("red", pb.ServingState(epoch=1, adapters=[pb.LoraAdapter(name="warm", id=1)]))

    served = [await models.resolve("red", ANYBODY) for _ in range(4)]
    assert sorted(model.tokenizer_digest for model in served) == sorted([ONE, ONE, OTHER, OTHER])
    assert len({id(model.tokenizer) for model in served}) == 2
    assert models.revision_shares("red") == {ModelRevision.of(OLD): 50.0, ModelRevision.of(NEW): 50.0}
    adapted = [await models.resolve("warm", ANYBODY) for _ in range(4)]
    assert sorted(model.tokenizer_digest for model in adapted) == sorted([ONE, ONE, OTHER, OTHER])
    assert {(model.name, model.base_model) for model in adapted} == {("warm", "red")}
    conversation = partial(Conversation, "", "c")
    assert len({(await models.resolve("red", ANYBODY, conversation)).tokenizer_digest for _ in range(4)}) == 1


async def test_a_worker_decides_nothing_for_requests_at_others() -> None:
    """What most workers of a revision announce is in force, of as many what was: after a restart the new value."""
    models = directory(Clock(1000.0))
    long, short = (pb.Model(names=["red"], weights_digest="old", max_model_len=length) for length in (100, 1))
    workers = RolloutWorkers(long)
    models.watch(workers)

    async def announce(*announced: pb.Model) -> int:
        await models.prepare(announced[-1], fetch)
        workers.models = announced
        models.on_workers_changed("red")
        return (await models.resolve("red", ANYBODY)).max_model_len

    assert await announce(long) == 100
    assert await announce(long, short) == 100
    assert await announce(long, short, short) == 1
    assert await announce(short, long) == 1
    assert await announce(long) == 100
    assert len(models._prepared) == 1


async def test_a_tokenizer_goes_with_the_last_worker_of_its_revision() -> None:
    """One that is stopped is not in force any more, and one that is not listed is not kept."""
    models = directory(Clock(1000.0))
    workers = RolloutWorkers(OLD, NEW)
    models.watch(workers)
    for model in (OLD, NEW):
        await models.prepare(model, fetch if model is OLD else fetch_other)
    workers.live = [ModelRevision.of(OLD)]
    models.on_workers_changed("red")
    assert (await models.resolve("crimson", ANYBODY)).tokenizer_digest == ONE

    workers.models = (OLD,)
    models.on_workers_changed("red")
    assert models.find("red").tokenizer_digest == ONE
    with pytest.raises(NotFound):
        models.find("crimson")

    workers.live, workers.models = [], ()
    models.on_workers_changed("red")
    assert models.find("red").tokenizer_digest == ONE  # the last one stays for a while


async def test_weights_of_an_operation_keep_the_tokenizer_of_their_workers() -> None:
    """They are those of several revisions, of which one with the same tokenizer is taken."""
    models = directory(Clock(1000.0))
    workers = RolloutWorkers(OLD, NEW)
    models.watch(workers)
    for model in (OLD, NEW):
        await models.prepare(model, fetch if model is OLD else fetch_other)
    workers.live = [ModelRevision.of(OLD, pb.ServingState(epoch=1, weights_epoch=1))]
    models.on_workers_changed("red")
    assert (await models.resolve("red", ANYBODY)).tokenizer_digest == ONE


async def test_weights_of_an_operation_that_is_not_followed_are_a_revision_of_their_own() -> None:
    """With the tokenizer of its workers; requests that are rendered for it go to nobody else."""
    models = directory(Clock(1000.0))
    workers = RolloutWorkers(OLD, NEW)
    models.watch(workers)
    for model in (OLD, NEW):
        await models.prepare(model, fetch if model is OLD else fetch_other)
    updated = ModelRevision.of(OLD, pb.ServingState(weights_epoch=1), follows_operations=False)
    workers.live = [updated]
    models.on_workers_changed("red")

    resolved = await models.resolve("red", ANYBODY)

    assert (resolved.tokenizer_digest, resolved.revision) == (ONE, updated)


async def test_a_caller_may_be_restricted_to_models() -> None:
    """It may use a model that has any allowed name, by each of its names."""
    models = directory(Clock(1000.0))
    await models.prepare(pb.Model(names=["red", "crimson"]), fetch)
    allowed, other = (Caller(models=frozenset({name})) for name in ("crimson", "blue"))

    assert (await models.resolve("red", allowed)).name == "red"
    for name in ("red", None):
        with pytest.raises(Forbidden, match="may not use the model `red`"):
            await models.resolve(name, other)


async def test_adapters_are_listed_with_their_model() -> None:
    """The desired state outlives the model; its adapters are not listed without it."""
    clock = Clock(1000.0)
    targets = DesiredStates()
    targets.observe("red", pb.ServingState(epoch=1, adapters=[pb.LoraAdapter(name="ruby", id=1)]))
    models = directory(clock, targets)
    await models.prepare(pb.Model(names=["red"]), fetch)
    assert models.find("ruby").lora is not None
    models.on_model_lost("red")
    clock.now += LINGER_S
    with pytest.raises(NotFound):
        models.find("ruby")
    assert list(models.adapters()) == []

    await models.prepare(pb.Model(names=["red"]), fetch)

    assert models.find("ruby").base_model == "red"


async def test_a_model_with_an_adapter_is_made_once() -> None:
    """Until the adapter or its base model is another one."""
    targets = DesiredStates()
    targets.observe("red", pb.ServingState(epoch=1, adapters=[pb.LoraAdapter(name="ruby", id=1)]))
    models = directory(Clock(1000.0), targets)
    await models.prepare(pb.Model(names=["red"]), fetch)
    first = models.find("ruby")
    assert models.find("ruby") is first

    targets.observe("red", pb.ServingState(epoch=2, adapters=[pb.LoraAdapter(name="ruby", id=2)]))
    second = models.find("ruby")
    assert second.lora is not None
    assert second.lora.id == 2

    longer = pb.Model(names=["red"], max_model_len=7)
    await models.prepare(longer, fetch)
    models.watch(RolloutWorkers(longer))
    models.on_workers_changed("red")
    assert (models.find("ruby").max_model_len, second.max_model_len) == (7, 0)


async def test_no_model_takes_a_name_of_another_one() -> None:
    """A worker is trusted with its own requests only: it gets none for a model by announcing that model's name."""
    models = directory(Clock(1000.0))
    await models.prepare(pb.Model(names=["red", "crimson"]), fetch)
    await models.prepare(pb.Model(names=["evil", "red", "crimson"]), fetch)

    assert [models.find(name).name for name in ("red", "crimson", "evil")] == ["red", "red", "evil"]
    assert [models.names(model) for model in models.list()] == [["red", "crimson"], ["evil"]]


async def test_a_first_name_is_its_models_own() -> None:
    """Whoever had it as a further name before."""
    models = directory(Clock(1000.0))
    await models.prepare(pb.Model(names=["evil", "red"]), fetch)
    await models.prepare(pb.Model(names=["red"]), fetch)

    assert models.find("red").name == "red"


class NamedWorkers(RolloutWorkers):
    """Workers of several models."""

    def announced(self, model: str) -> Sequence[pb.Model]:
        """Return what those of one started with."""
        return [each for each in self.models if each.names[0] == model]


async def test_one_worker_takes_no_name_that_several_others_have() -> None:
    """By having it as its first name, whoever comes first; it gets it once the others are gone."""
    clock = Clock(1000.0)
    models = directory(clock)
    big, evil = pb.Model(names=["big", "gpt"]), pb.Model(names=["gpt"])
    workers = NamedWorkers(big, big, evil)
    models.watch(workers)
    await models.prepare(big, fetch)
    await models.prepare(evil, fetch)
    models.on_workers_changed("gpt")
    assert [models.find(name).name for name in ("big", "gpt")] == ["big", "big"]

    models.on_model_lost("big")
    clock.now += LINGER_S
    assert models.find("gpt").name == "gpt"

    await models.prepare(big, fetch)
    models.on_workers_changed("big")
    assert models.find("gpt").name == "big"


async def test_a_first_name_stays_with_its_own_workers_while_they_are_away() -> None:
    """Whoever else has it, for as long as models stay."""
    models = directory(Clock(1000.0))
    red, evil = pb.Model(names=["red"]), pb.Model(names=["evil", "red"])
    models.watch(NamedWorkers(evil))
    await models.prepare(red, fetch)
    models.on_model_lost("red")
    await models.prepare(evil, fetch)
    models.on_workers_changed("evil")

    assert models.find("red").name == "red"


async def test_adapters_of_a_model_without_its_name_are_not_found() -> None:
    """They would be loaded on top of another one."""
    targets = DesiredStates()
    targets.observe("gpt", pb.ServingState(epoch=1, adapters=[pb.LoraAdapter(name="ruby", id=1)]))
    models = directory(Clock(1000.0), targets)
    big, evil = pb.Model(names=["big", "gpt"]), pb.Model(names=["gpt"])
    models.watch(NamedWorkers(big, big, evil))
    await models.prepare(big, fetch)
    await models.prepare(evil, fetch)

    assert list(models.adapters()) == []
    with pytest.raises(NotFound):
        models.find("ruby")


async def test_a_name_goes_to_another_model_that_has_it_once_its_own_is_gone() -> None:
    """After the time for which models stay."""
    clock = Clock(1000.0)
    models = directory(clock)
    await models.prepare(pb.Model(names=["red", "colour"]), fetch)
    await models.prepare(pb.Model(names=["blue", "colour"]), fetch)
    models.on_model_lost("red")
    assert models.find("colour").name == "red"

    clock.now += LINGER_S

    assert models.find("colour").name == "blue"
