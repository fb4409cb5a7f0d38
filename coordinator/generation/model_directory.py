"""The models that workers announced, with tokenizer and chat template, by name.

One file, since names, revisions and what lingers are decided over the same tables.
"""

import json
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from tokenwire.coordinator.auth.caller import Caller
from tokenwire.coordinator.fleet.admission.expected_models import ExpectedModels
from tokenwire.coordinator.fleet.desired_state import Adapter, DesiredStates
from tokenwire.coordinator.fleet.pool_listener import PoolListener
from tokenwire.coordinator.fleet.session import FetchFiles
from tokenwire.coordinator.generation.loaded_texts import LoadedTexts, TextsLoader
from tokenwire.coordinator.generation.traffic_split import Conversation, RevisionedWorkers, TrafficSplit
from tokenwire.coordinator.parsing.disagreements import Disagreements
from tokenwire.coordinator.settings import CoordinatorSettings
from tokenwire.coordinator.types import ServedModel
from tokenwire.errors import NotFound, Unavailable
from tokenwire.protocol.model_revision import ModelRevision
from tokenwire.v1 import inference_pb2 as pb

log = logging.getLogger(__name__)


def generates(model: ServedModel) -> bool:
    """Whether a model generates, and does not pool."""
    return model.pooling is None


class ModelDirectory(PoolListener):
    """Registers models from workers' welcomes and finds them by name. Models without workers stay for a while.

    Each revision of a model has its own tokenizer and template, until its last worker is no longer listed. Its other
    properties are those that most of its workers announce: one of them decides nothing for requests at others.
    """

    def __init__(
        self,
        settings: CoordinatorSettings,
        desired: DesiredStates | None = None,
        clock: Callable[[], float] = time.monotonic,
        expected: ExpectedModels | None = None,
    ) -> None:
        self._settings = settings
        self._expected = expected or ExpectedModels()
        self._desired = desired or DesiredStates()
        self._models: dict[str, ServedModel] = {}
        """That of the revision that was announced last, by each of its names."""
        self._revisions: dict[str, dict[ModelRevision, ServedModel]] = {}
        """All revisions of a model, by its first name, in order of their last announcement."""
        self._prepared: dict[str, ServedModel] = {}
        """By the serialized announcement: workers with equal ones share a model."""
        self._texts = TextsLoader(settings)
        self._workers: RevisionedWorkers | None = None
        self._split: TrafficSplit | None = None
        self._live: dict[str, Sequence[ModelRevision]] = {}
        """The revisions of workers that take requests, by the model's first name."""
        self._adapted: dict[tuple[str, ModelRevision], tuple[ServedModel, ServedModel]] = {}
        """Base models, and with their adapters, by the adapter's name and the revision."""
        self._ever_connected = False
        self._absent: dict[str, float] = {}
        """When the last worker of a model without workers was lost, by its first name."""
        self._clock = clock

    def watch(self, workers: RevisionedWorkers) -> None:
        """Follow which revisions these workers have."""
        self._workers, self._split = workers, TrafficSplit(workers, self._settings.revision_shares)

    @property
    def disagreements(self) -> Disagreements:
        """Return the counts of replies whose parsers disagreed with themselves."""
        return self._texts.disagreements

    async def close(self) -> None:
        """End the renderer process."""
        await self._texts.close()

    def list(self) -> list[ServedModel]:
        """Return every model once, in order of registration."""
        self._drop_absent()
        return list({id(model): model for model in self._models.values()}.values())

    def names(self, model: ServedModel) -> Sequence[str]:
        """Return the names under which a model is found: those that it announced, and no other model has."""
        return [name for name in model.names if self._models.get(name) is model]

    def awaited(self) -> Sequence[str]:
        """Return the names of expected models that no worker has announced yet."""
        self._drop_absent()
        return self._expected.unknown()

    async def resolve(
        self,
        name: str | None,
        caller: Caller,
        conversation: Callable[[], Conversation] | None = None,
        *,
        suits: Callable[[ServedModel], bool] = generates,
    ) -> ServedModel:
        """Return the model of a request, after waiting for an expected one. Raises NotFound, Unavailable or Forbidden.

        suits: of which it is the first one, if there is any and the request names none.
        A caller may use a model if any of its names is allowed. Of several revisions it is the one of the request's
        conversation, or one by their shares.
        """
        model = await self._wait_for(name, suits)
        if caller.models is not None:
            caller.check_model(name or model.name, *model.names)
        live = self._live.get(model.base_model, ())
        if not live or (len(live) == 1 and live[0].key == model.revision.key):
            return model
        return self._in_revision(model, live, conversation)

    def revision_shares(self, model: str) -> dict[ModelRevision, float]:
        """Return the percentages of new requests that the live revisions of a model get now, by its first name."""
        live = self._live.get(model, ())
        return dict.fromkeys(live, 100.0) if self._split is None or len(live) < 2 else self._split.shares(model, live)

    def _in_revision(
        self, model: ServedModel, live: Sequence[ModelRevision], conversation: Callable[[], Conversation] | None
    ) -> ServedModel:
        """Return a model as the chosen revision serves it."""
        chosen = live[0]
        if len(live) > 1 and self._split is not None:
            chosen = self._split.choose(model.base_model, live, conversation and conversation())
        revisions = self._revisions.get(model.base_model, {})
        newest_first = list(revisions.values())[::-1]
        base = revisions.get(chosen) or next((each for each in newest_first if each.revision.accepts(chosen)), None)
        if base is None:  # weights of an operation that is not followed: of any with the same tokenizer
            same_text = (each for each in newest_first if each.tokenizer_digest == chosen.tokenizer)
            base = replace(next(same_text, model), revision=chosen)
        return base if model.lora is None else self._adapt(base, model.name, model.lora)

    def on_workers_changed(self, model: str) -> None:
        """Record which revisions of a model are live, and remove those without a listed worker."""
        if self._workers is None:
            return
        self._live[model] = self._workers.live_revisions(model)
        announced = self._workers.announced(model)
        known = {ModelRevision.of(each) for each in announced}
        revisions = self._revisions.get(model, {})
        self._follow_most(model, Counter(map(_announcement, announced)))
        self._settle_names(model)
        gone = [each for each in revisions if each not in known]
        if gone and len(gone) < len(revisions):  # the last one stays for a while, as its model does
            for revision in gone:
                del revisions[revision]
                log.info("%s has no worker of revision %s any more", model, revision)
            newest = next(reversed(revisions.values()))
            self._models = {
                name: newest if each.name == model and each.revision in gone else each
                for name, each in self._models.items()
                if each.name != model or each.revision not in gone or name in newest.names
            }
            self._keep_used()

    def _follow_most(self, name: str, announced: Counter[str]) -> None:
        """Let each revision of a model be what most of its workers announce: of as many, what it is already."""
        revisions = self._revisions.get(name, {})
        for revision, current in revisions.items():
            own = {key: each for key, each in self._prepared.items() if each.revision == revision and each.name == name}
            most = max(own, key=lambda key: (announced[key], own[key] is current), default=None)
            if most is not None and own[most] is not current:
                revisions[revision] = own[most]
                names = [each for each, model in self._models.items() if model is current]
                self._models.update(dict.fromkeys(names, own[most]))
        # What nobody announces any more is not kept.
        used = {id(model) for model in revisions.values()}
        self._prepared = {
            key: each
            for key, each in self._prepared.items()
            if each.name != name or key in announced or id(each) in used
        }

    def _claim_names(self, names: Iterable[str], model: ServedModel) -> None:
        """Let a model be found by these names, unless another one has them: no worker takes requests for other models.

        A model's first name is its own, unless it is also one of a model with more workers; of other names, the first
        to come has them, as long as it is served.
        """
        for name in names:
            owner = self._models.get(name)
            if owner is None or owner.name == model.name or self._may_take(name, model, owner):
                self._models[name] = model
            else:
                log.warning("%s is not found as %s, which is a name of %s", model.name, name, owner.name)

    def _may_take(self, name: str, model: ServedModel, owner: ServedModel) -> bool:
        """Return whether a model takes a name that another one has: one worker takes none of several others."""
        own, others = (
            0 if self._workers is None else len(self._workers.announced(each.name)) for each in (model, owner)
        )
        if name == model.name:
            return max(own, 1) >= others  # its first worker is not listed with it yet
        return name == owner.name and 0 < others < own

    def _settle_names(self, name: str) -> None:
        """Let a model have the first names that it and others have, by how many workers each has now."""
        revisions = self._revisions.get(name)
        newest = next(reversed(revisions.values())) if revisions else None
        for each in () if newest is None else newest.names:
            owner = self._models.get(each)
            if newest is not None and owner is not None and owner.name != name and self._may_take(each, newest, owner):
                log.warning("%s is found as %s now, which has fewer workers as %s", name, each, owner.name)
                self._models[each] = newest

    def _keep_used(self) -> None:
        """Remove what no revision of any model uses."""
        used = {id(model) for revisions in self._revisions.values() for model in revisions.values()}
        self._prepared = {
            key: model for key, model in self._prepared.items() if model.revision in self._revisions.get(model.name, ())
        }
        self._adapted = {key: models for key, models in self._adapted.items() if id(models[0]) in used}
        self._texts.keep([model.tokenizer for model in self._prepared.values()])

    async def _wait_for(self, name: str | None, suits: Callable[[ServedModel], bool]) -> ServedModel:
        self._drop_absent()
        if name and name in self._models:
            return self._models[name]
        awaited = self.awaited()
        if awaited and not name and not self._models:
            name = awaited[0]
        if name and name in awaited:
            await self._expected.wait(name)
        return self.find(name, suits)

    def find(self, name: str | None, suits: Callable[[ServedModel], bool] = generates) -> ServedModel:
        """Find a model or adapter by name; without a name, the first model, of those that suit if there are any. Raises
        NotFound or Unavailable.
        """
        self._drop_absent()
        if not self._models and (not self._ever_connected or not name):
            raise Unavailable("No worker has connected yet; the model may still be loading.", retry_after_s=2)
        if not name:
            suiting = [model for model in self._models.values() if suits(model)]
            return min(suiting or self._models.values(), key=lambda model: model.name in self._absent)
        model = self._models.get(name) or self._with_adapter(name)
        if model is None:
            names = ", ".join([*self._models, *(adapter.lora.name for adapter in self.adapters())]) or "none now"
            raise NotFound(f"The model `{name}` does not exist. Valid aliases: {names}.", param="model")
        return model

    def adapters(self) -> Iterator[Adapter]:
        """List the adapters of all models."""
        return (adapter for adapter in self._desired.adapters() if self._has_own_name(adapter.model))

    def on_model_lost(self, model: str) -> None:
        """Record since when a model, by its first name, has had no worker."""
        self._absent.setdefault(model, self._clock())

    def _drop_absent(self) -> None:
        if not self._absent:
            return
        over = self._clock() - self._settings.model_linger_s
        for gone in [name for name, since in self._absent.items() if since <= over]:
            del self._absent[gone]
            self._expected.mark_unavailable(name for name, model in self._models.items() if model.name == gone)
            self._models = {name: model for name, model in self._models.items() if model.name != gone}
            self._revisions.pop(gone, None)
            self._live.pop(gone, None)
            for revisions in self._revisions.values():  # its names may be others' too
                newest = next(reversed(revisions.values()))
                self._claim_names((name for name in newest.names if name not in self._models), newest)
            self._keep_used()
            log.info("%s has had no worker for %g s and is no longer served", gone, self._settings.model_linger_s)

    def _has_own_name(self, model: str) -> bool:
        return model in self._models and self._models[model].name == model

    def _with_adapter(self, name: str) -> ServedModel | None:
        adapter = self._desired.adapter(name)
        if adapter is None or not self._has_own_name(adapter.model):
            return None
        return self._adapt(self._models[adapter.model], name, adapter.lora)

    def _adapt(self, base: ServedModel, name: str, lora: pb.LoraAdapter) -> ServedModel:
        known, model = self._adapted.get((name, base.revision), (None, None))
        if model is None or known is not base or model.lora != lora:
            loaded = {each.lora.name for each in self.adapters()}
            self._adapted = {key: models for key, models in self._adapted.items() if key[0] in loaded}
            model = replace(base, names=(name,), lora=lora, base_model=base.name)
            self._adapted[name, base.revision] = base, model
        return model

    async def prepare(self, info: pb.Model, fetch: FetchFiles) -> None:
        """Register a worker's model, with its tokenizer from memory, disk or the worker itself."""
        key = _announcement(info)
        if key not in self._prepared:
            model = _served(info, await self._texts.load(info, fetch))
            # Another worker's session may have been faster: workers with equal announcements share a model.
            self._prepared.setdefault(key, model)
        model = self._prepared[key]
        self._ever_connected = True
        self._absent.pop(model.name, None)
        revisions = self._revisions.setdefault(model.name, {})
        if revisions and model.revision not in revisions:
            log.warning("%s has workers of more than one revision: %s is new", model.name, model.revision)
        # Until it is known how many announce it, a revision stays what it is.
        model_in_force = revisions.pop(model.revision, model)
        revisions[model.revision] = model_in_force
        self._claim_names(model.names, model_in_force)
        self._expected.mark_available(name for name in model.names if self._models[name].name == model.name)


def _announcement(info: pb.Model) -> str:
    """Return what identifies an announcement: equal ones have equal keys."""
    return info.SerializeToString(deterministic=True).hex()


def _served(info: pb.Model, texts: LoadedTexts) -> ServedModel:
    return ServedModel(
        names=tuple(info.names),
        root=info.root,
        max_model_len=info.max_model_len,
        max_token_id=info.max_token_id or texts.tokenizer.backend.get_vocab_size() - 1,
        tokenizer_digest=info.tokenizer_digest,
        default_sampling_params=json.loads(info.default_sampling_params_json or "{}"),
        tokenizer=texts.tokenizer,
        template=texts.template,
        token_texts=texts.token_texts,
        parsers=texts.parsers,
        tasks=tuple(info.tasks) or ("generate",),
        pooling=info.pooling if info.HasField("pooling") else None,
        media=tuple(info.media),
        revision=ModelRevision.of(info),
    )
