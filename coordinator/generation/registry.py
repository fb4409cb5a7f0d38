"""The models behind this coordinator: what their workers announced, with tokenizer and chat template."""

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

from tokenwire import tokenizer_files
from tokenwire.coordinator.fleet.admission.expected_models import ExpectedModels
from tokenwire.coordinator.fleet.desired_state import DesiredStates
from tokenwire.coordinator.fleet.session import FetchFiles
from tokenwire.coordinator.parsing.loader import load_parsers
from tokenwire.coordinator.parsing.settings import ModelFacts
from tokenwire.coordinator.settings import CoordinatorSettings
from tokenwire.coordinator.text.logprobs import TokenTexts
from tokenwire.coordinator.text.template.chat_template import ChatTemplate, UntrustedRenderer
from tokenwire.coordinator.text.template.renderer_process import IsolatedRenderer
from tokenwire.coordinator.text.tokenizer import Tokenizer, read_directory
from tokenwire.coordinator.types import Adapter, ServedModel
from tokenwire.errors import NotFound, Unavailable
from tokenwire.v1 import control_pb2
from tokenwire.v1 import inference_pb2 as pb

log = logging.getLogger(__name__)


class ModelDirectory:
    """Learns models from workers' welcomes and finds them by name. They stay known for a while without workers."""

    def __init__(
        self,
        settings: CoordinatorSettings,
        targets: DesiredStates | None = None,
        clock: Callable[[], float] = time.monotonic,
        expected: ExpectedModels | None = None,
    ) -> None:
        self._settings = settings
        self._expected = expected or ExpectedModels()
        self._targets = targets or DesiredStates()
        self._models: dict[str, ServedModel] = {}
        self._prepared: dict[str, ServedModel] = {}
        """By what workers say of their model: those that say the same share it."""
        self._ever_met = False
        self._absent: dict[str, float] = {}
        """First names of models without workers, each with the time at which the last one left."""
        self._clock = clock
        self._untrusted = IsolatedRenderer() if settings.template.trust_request else None

    async def close(self) -> None:
        """End what runs beside this process."""
        if self._untrusted is not None:
            await self._untrusted.close()

    def list(self) -> list[ServedModel]:
        """Return every model once, in the order in which they became known."""
        self._forget_absent()
        return list({id(model): model for model in self._models.values()}.values())

    def awaited(self) -> Sequence[str]:
        """Return the names of expected models that no worker has announced yet."""
        self._forget_absent()
        return self._expected.unknown()

    async def wait_for(self, name: str | None) -> ServedModel:
        """Find a model as `find` does; one that is expected is waited for. Raises NotFound or Unavailable."""
        self._forget_absent()
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
        self._forget_absent()
        if not self._models and (not self._ever_met or not name):
            raise Unavailable("No worker has connected yet; the model may still be loading.", retry_after_s=2)
        if not name:
            return min(self._models.values(), key=lambda model: model.names[0] in self._absent)
        model = self._models.get(name) or self._with_adapter(name)
        if model is None:
            names = ", ".join([*self._models, *(adapter.lora.name for adapter in self.adapters())]) or "none now"
            raise NotFound(f"The model `{name}` does not exist. Valid aliases: {names}.", param="model")
        return model

    def adapters(self) -> Iterator[Adapter]:
        """List the adapters of all models."""
        return (adapter for adapter in self._targets.adapters() if adapter.model in self._models)

    def on_workers_gone(self, name: str) -> None:
        """Hear that a model, by its first name, has no worker any more."""
        self._absent.setdefault(name, self._clock())

    def _forget_absent(self) -> None:
        if not self._absent:
            return
        over = self._clock() - self._settings.model_linger_s
        for gone in [name for name, since in self._absent.items() if since <= over]:
            del self._absent[gone]
            self._expected.mark_unavailable(name for name, model in self._models.items() if model.names[0] == gone)
            self._models = {name: model for name, model in self._models.items() if model.names[0] != gone}
            self._prepared = {said: model for said, model in self._prepared.items() if model.names[0] != gone}
            log.info("%s has had no worker for %g s and is not served any more", gone, self._settings.model_linger_s)

    def _with_adapter(self, name: str) -> ServedModel | None:
        adapter = self._targets.adapter(name)
        if adapter is None or adapter.model not in self._models:
            return None
        return replace(self._models[adapter.model], names=(name,), adapter=adapter)

    async def prepare(self, info: pb.Model, fetch: FetchFiles) -> None:
        """Make a worker's model servable: get its tokenizer, from memory, disk or the worker itself."""
        said = info.SerializeToString(deterministic=True).hex()
        if said not in self._prepared:
            files = await self._files(info.tokenizer_digest, fetch)
            model = await asyncio.to_thread(_build, info, files, self._settings, self._untrusted)
            # Another worker's session may have been quicker: one model for all that say the same of it.
            self._prepared.setdefault(said, model)
        model = self._prepared[said]
        self._ever_met = True
        self._absent.pop(model.names[0], None)
        for name in model.names:
            known = self._models.get(name)
            if known is not None and known.tokenizer_digest != model.tokenizer_digest:
                log.warning("a worker announces %s with another tokenizer; new requests use the new one", name)
            self._models[name] = model
        self._expected.mark_available(model.names)

    async def _files(self, digest: str, fetch: FetchFiles) -> dict[str, bytes]:
        settings = self._settings
        if settings.tokenizer is not None:
            return read_directory(settings.tokenizer)
        kept = None
        if settings.cache_dir is not None and digest.isalnum():
            kept = settings.cache_dir / "tokenizers" / f"{digest}.pb"
            files = _read_kept(kept)
            if files and tokenizer_files.digest(files) == digest:
                return files
        files = await fetch()
        if kept is not None:
            _keep(kept, files)
        return files


def _build(
    info: pb.Model, files: Mapping[str, bytes], settings: CoordinatorSettings, untrusted: UntrustedRenderer | None
) -> ServedModel:
    """Build what takes time: for a thread. Raises InvalidRequest or ParserUnusable."""
    tokenizer = Tokenizer.from_files(files)
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


def _read_kept(path: Path) -> dict[str, bytes]:
    try:
        return dict(control_pb2.GetTokenizerResponse.FromString(path.read_bytes()).files)
    except FileNotFoundError:
        return {}
    except (OSError, DecodeError) as error:
        log.warning("cannot read the tokenizer kept in %s: %s", path, error)
        return {}


def _keep(path: Path, files: dict[str, bytes]) -> None:
    # Written beside and moved, so that another process never sees half of it. It is a convenience: a disk that
    # refuses it costs a fetch per start, not the service.
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as temporary:
            temporary.write(control_pb2.GetTokenizerResponse(files=files).SerializeToString())
        os.replace(temporary.name, path)
    except OSError as error:
        log.warning("cannot keep the tokenizer in %s: %s", path, error)
