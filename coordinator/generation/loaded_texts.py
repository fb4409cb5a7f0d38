"""Loads what turns text into ids and back, from a worker's files: once for all models with the same ones."""

import asyncio
import logging
import os
import tempfile
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from google.protobuf.message import DecodeError

from tokenwire.coordinator.fleet.session import FetchFiles
from tokenwire.coordinator.parsing.disagreements import Disagreements
from tokenwire.coordinator.parsing.loader import load_parsers
from tokenwire.coordinator.parsing.message import Parsers
from tokenwire.coordinator.parsing.settings import ModelFacts
from tokenwire.coordinator.settings import CoordinatorSettings
from tokenwire.coordinator.text.logprobs import TokenTexts
from tokenwire.coordinator.text.template.chat_template import ChatTemplate, UntrustedRenderer
from tokenwire.coordinator.text.template.renderer_process import IsolatedRenderer
from tokenwire.coordinator.text.tokenizer import ModelTokenizer
from tokenwire.coordinator.text.tokenizer_files import read_directory
from tokenwire.errors import InvalidRequest
from tokenwire.protocol.tokenizer_digest import tokenizer_digest
from tokenwire.v1 import control_pb2
from tokenwire.v1 import inference_pb2 as pb

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LoadedTexts:
    """A tokenizer, the template that belongs to it, and the parsers of what is generated with it."""

    tokenizer: ModelTokenizer
    template: ChatTemplate
    token_texts: TokenTexts
    parsers: Parsers | None


class TextsLoader:
    """Loads texts from memory, from disk, or from a worker. Those with one digest are one object."""

    def __init__(self, settings: CoordinatorSettings) -> None:
        self._settings = settings
        self.disagreements = Disagreements()
        """Those of all parsers."""
        self._loaded: dict[tuple[str, str, str, str], LoadedTexts] = {}
        """By the digest of tokenizer and template, and what parsers depend on."""
        self._loading = asyncio.Lock()
        self._untrusted = IsolatedRenderer() if settings.template.trust_request else None

    async def close(self) -> None:
        """End the renderer process."""
        if self._untrusted is not None:
            await self._untrusted.close()

    async def load(self, info: pb.Model, fetch: FetchFiles) -> LoadedTexts:
        """Return what a worker's announcement needs. Raises InvalidRequest or ParserUnusable."""
        own, digest = self._settings.tokenizer, info.tokenizer_digest
        files: Mapping[str, bytes] = {}
        if own is not None:
            files = await asyncio.to_thread(read_directory, own)
            digest = await asyncio.to_thread(tokenizer_digest, files)
        key = digest, info.names[0], info.model_type, info.architecture
        if key not in self._loaded:
            files = files or await self._fetched(digest, fetch)
            async with self._loading:  # a tokenizer that is built stops all streams: it is for one of many workers
                if key not in self._loaded:
                    self._loaded[key] = await asyncio.to_thread(
                        _load, info, files, self._tokenizer(digest), self._settings, self._untrusted, self.disagreements
                    )
        return self._loaded[key]

    def _tokenizer(self, digest: str) -> ModelTokenizer | None:
        """Return the tokenizer with a digest if some model has it already; files without one are not compared."""
        return next((texts.tokenizer for key, texts in self._loaded.items() if digest and key[0] == digest), None)

    def keep(self, tokenizers: Collection[ModelTokenizer]) -> None:
        """Remove what has none of these tokenizers."""
        kept = {id(tokenizer) for tokenizer in tokenizers}
        self._loaded = {key: texts for key, texts in self._loaded.items() if id(texts.tokenizer) in kept}

    async def _fetched(self, digest: str, fetch: FetchFiles) -> dict[str, bytes]:
        """Return a worker's files, or those with its digest from the disk. Raises InvalidRequest."""
        settings, cached = self._settings, None
        if settings.cache_dir is not None and digest.isalnum():
            cached = settings.cache_dir / "tokenizers" / f"{digest}.pb"
            files = _read_cached(cached)
            if files and tokenizer_digest(files) == digest:
                return files
        files = await fetch()
        if digest and await asyncio.to_thread(tokenizer_digest, files) != digest:  # others may have announced it, too
            raise InvalidRequest("The files of the tokenizer do not have the digest that the worker announced.")
        if cached is not None:
            _write_cached(cached, files)
        return files


def _load(
    info: pb.Model,
    files: Mapping[str, bytes],
    tokenizer: ModelTokenizer | None,
    settings: CoordinatorSettings,
    untrusted: UntrustedRenderer | None,
    disagreements: Disagreements,
) -> LoadedTexts:
    """Load everything but a known tokenizer; takes long, so call it in a thread.

    Raises InvalidRequest or ParserUnusable.
    """
    tokenizer = tokenizer or ModelTokenizer.from_files(files, trusted=settings.tokenizer is not None)
    template = settings.template
    facts = ModelFacts(info.names[0], info.model_type or None, info.architecture or None)
    return LoadedTexts(
        tokenizer=tokenizer,
        template=ChatTemplate(
            template.source or tokenizer.chat_template,
            tokenizer.special_tokens,
            template.content_format,
            default_kwargs=template.default_kwargs,
            untrusted=untrusted,
            given=template.source is not None,
        ),
        token_texts=TokenTexts(tokenizer),
        parsers=load_parsers(settings.parsers, facts, files, disagreements),
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
