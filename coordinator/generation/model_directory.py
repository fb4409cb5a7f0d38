"""The models that workers announced, with tokenizer and chat template, by name."""

import asyncio
import json
import logging
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from google.protobuf.message import DecodeError

from tokenwire.coordinator.auth.caller import Caller
from tokenwire.coordinator.fleet.admission.expected_models import ExpectedModels
from tokenwire.coordinator.fleet.desired_state import Adapter, DesiredStates
from tokenwire.coordinator.fleet.pool_listener import PoolListener
from tokenwire.coordinator.fleet.session import FetchFiles
from tokenwire.coordinator.parsing.loader import load_parsers
from tokenwire.coordinator.parsing.settings import ModelFacts
from tokenwire.coordinator.settings import CoordinatorSettings
from tokenwire.coordinator.text.logprobs import TokenTexts
from tokenwire.coordinator.text.template.chat_template import ChatTemplate, UntrustedRenderer
from tokenwire.coordinator.text.template.renderer_process import IsolatedRenderer
from tokenwire.coordinator.text.tokenizer import ModelTokenizer, read_directory
from tokenwire.coordinator.types import ServedModel
from tokenwire.errors import NotFound, Unavailable
from tokenwire.protocol.tokenizer_digest import tokenizer_digest
from tokenwire.v1 import control_pb2
from tokenwire.v1 import inference_pb2 as pb

log = logging.getLogger(__name__)


class ModelDirectory(PoolListener):
    """Registers models from workers' welcomes and finds them by name. Models without workers stay for a while."""

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
        self._prepared: dict[str, ServedModel] = {}
        """By the serialized announcement: workers with equal ones share a model."""
        self._adapted: dict[str, tuple[ServedModel, ServedModel]] = {}
        """Base models, and with their adapters, by the adapter's name."""
        self._ever_connected = False
        self._absent: dict[str, float] = {}
        """When the last worker of a model without workers was lost, by its first name."""
        self._clock = clock
        self._untrusted = IsolatedRenderer() if settings.template.trust_request else None

    async def close(self) -> None:
        """End the renderer process."""
        if self._untrusted is not None:
            await self._untrusted.close()

    def list(self) -> list[ServedModel]:
        """Return every model once, in order of registration."""
        self._drop_absent()
        return list({id(model): model for model in self._models.values()}.values())

    def awaited(self) -> Sequence[str]:
        """Return the names of expected models that no worker has announced yet."""
        self._drop_absent()
        return self._expected.unknown()

    async def resolve(self, name: str | None, caller: Caller) -> ServedModel:
        """Return the model of a request, after waiting for an expected one. Raises NotFound, Unavailable or Forbidden.

        A caller may use a model if any of its names is allowed.
        """
        model = await self._wait_for(name)
        if caller.models is not None:
            caller.check_model(name or model.name, *model.names)
        return model

    async def _wait_for(self, name: str | None) -> ServedModel:
        self._drop_absent()
        if name and name in self._models:
            return self._models[name]
        awaited = self.awaited()
        if awaited and not name and not self._models:
            name = awaited[0]
        if name and name in awaited:
            await self._expected.wait(name)
        return self.find(name)

    def find(self, name: str | None) -> ServedModel:
        """Find a model or adapter by name; without a name, the first model. Raises NotFound or Unavailable."""
        self._drop_absent()
        if not self._models and (not self._ever_connected or not name):
            raise Unavailable("No worker has connected yet; the model may still be loading.", retry_after_s=2)
        if not name:
            return min(self._models.values(), key=lambda model: model.name in self._absent)
        model = self._models.get(name) or self._with_adapter(name)
        if model is None:
            names = ", ".join([*self._models, *(adapter.lora.name for adapter in self.adapters())]) or "none now"
            raise NotFound(f"The model `{name}` does not exist. Valid aliases: {names}.", param="model")
        return model

    def adapters(self) -> Iterator[Adapter]:
        """List the adapters of all models."""
        return (adapter for adapter in self._desired.adapters() if adapter.model in self._models)

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
            self._prepared = {key: model for key, model in self._prepared.items() if model.name != gone}
            log.info("%s has had no worker for %g s and is no longer served", gone, self._settings.model_linger_s)

    def _with_adapter(self, name: str) -> ServedModel | None:
        adapter = self._desired.adapter(name)
        if adapter is None or adapter.model not in self._models:
            return None
        base, (known, model) = self._models[adapter.model], self._adapted.get(name, (None, None))
        if model is None or known is not base or model.lora != adapter.lora:
            loaded = {each.lora.name for each in self.adapters()}
            self._adapted = {other: models for other, models in self._adapted.items() if other in loaded}
            model = replace(base, names=(name,), lora=adapter.lora, base_model=adapter.model)
            self._adapted[name] = base, model
        return model

    async def prepare(self, info: pb.Model, fetch: FetchFiles) -> None:
        """Register a worker's model, with its tokenizer from memory, disk or the worker itself."""
        key = info.SerializeToString(deterministic=True).hex()
        if key not in self._prepared:
            files = await self._tokenizer_files(info.tokenizer_digest, fetch)
            model = await asyncio.to_thread(_build, info, files, self._settings, self._untrusted)
            # Another worker's session may have been faster: workers with equal announcements share a model.
            self._prepared.setdefault(key, model)
        model = self._prepared[key]
        self._ever_connected = True
        self._absent.pop(model.name, None)
        for name in model.names:
            known = self._models.get(name)
            if known is not None and known.tokenizer_digest != model.tokenizer_digest:
                log.warning("a worker announces %s with another tokenizer; new requests use the new one", name)
            self._models[name] = model
        self._expected.mark_available(model.names)

    async def _tokenizer_files(self, digest: str, fetch: FetchFiles) -> dict[str, bytes]:
        settings = self._settings
        if settings.tokenizer is not None:
            return read_directory(settings.tokenizer)
        cached = None
        if settings.cache_dir is not None and digest.isalnum():
            cached = settings.cache_dir / "tokenizers" / f"{digest}.pb"
            files = _read_cached(cached)
            if files and tokenizer_digest(files) == digest:
                return files
        files = await fetch()
        if cached is not None:
            _write_cached(cached, files)
        return files


def _build(
    info: pb.Model, files: Mapping[str, bytes], settings: CoordinatorSettings, untrusted: UntrustedRenderer | None
) -> ServedModel:
    """Build a model; takes long, so call it in a thread. Raises InvalidRequest or ParserUnusable."""
    tokenizer = ModelTokenizer.from_files(files)
    template = settings.template
    facts = ModelFacts(info.names[0], info.model_type or None, info.architecture or None)
    return ServedModel(
        names=tuple(info.names),
        root=info.root,
        max_model_len=info.max_model_len,
        max_token_id=info.max_token_id or tokenizer.backend.get_vocab_size() - 1,
        tokenizer_digest=info.tokenizer_digest,
        default_sampling_params=json.loads(info.default_sampling_params_json or "{}"),
        tokenizer=tokenizer,
        template=ChatTemplate(
            template.source or tokenizer.chat_template,
            tokenizer.special_tokens,
            template.content_format,
            default_kwargs=template.default_kwargs,
            untrusted=untrusted,
        ),
        token_texts=TokenTexts(tokenizer),
        parsers=load_parsers(settings.parsers, facts, files),
    )


def _read_cached(path: Path) -> dict[str, bytes]:
    try:
        return dict(control_pb2.GetTokenizerResponse.FromString(path.read_bytes()).files)
    except FileNotFoundError:
        return {}
    except (OSError, DecodeError) as error:
        log.warning("cannot read the cached tokenizer %s: %s", path, error)
        return {}


def _write_cached(path: Path, files: dict[str, bytes]) -> None:
    # Written to a temporary file and renamed, so that other processes never read an incomplete one. The cache is
    # optional: without it, each start fetches the files.
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as temporary:
            temporary.write(control_pb2.GetTokenizerResponse(files=files).SerializeToString())
        os.replace(temporary.name, path)
    except OSError as error:
        log.warning("cannot cache the tokenizer in %s: %s", path, error)
